# attnforge::static_dependencies: what a program that links libattnforge.a links too. Used by the build and, installed, by
# attnforgeConfig.cmake. Archives first, so that a built binary travels. The target is not made when something is missing;
# ATTNFORGE_STATIC_DEPENDENCIES_MISSING then names it.
set(ATTNFORGE_STATIC_DEPENDENCIES_MISSING "")
if(NOT TARGET attnforge::static_dependencies)
  find_package(Threads REQUIRED)
  set(_attnforge_libraries)
  foreach(_attnforge_name sqlite3 zstd xxhash)
    find_library(ATTNFORGE_LIBRARY_${_attnforge_name} NAMES lib${_attnforge_name}.a ${_attnforge_name})
    mark_as_advanced(ATTNFORGE_LIBRARY_${_attnforge_name})
    if(ATTNFORGE_LIBRARY_${_attnforge_name})
      list(APPEND _attnforge_libraries ${ATTNFORGE_LIBRARY_${_attnforge_name}})
    else()
      list(APPEND ATTNFORGE_STATIC_DEPENDENCIES_MISSING ${_attnforge_name})
    endif()
  endforeach()
  if(NOT ATTNFORGE_STATIC_DEPENDENCIES_MISSING)
    add_library(attnforge::static_dependencies INTERFACE IMPORTED)
    set_target_properties(attnforge::static_dependencies PROPERTIES
      INTERFACE_LINK_LIBRARIES "${_attnforge_libraries};Threads::Threads;${CMAKE_DL_LIBS};m")
  endif()
  unset(_attnforge_libraries)
  unset(_attnforge_name)
endif()
