# libattnforge.so and libattnforge.a out of the folders' object libraries. SQLite, zstd and xxhash are inside the shared library;
# users of the static one link them (attnforgeConfig.cmake and attnforge.pc say so).
set(ATTNFORGE_OBJECT_LIBRARIES)
foreach(folder IN LISTS ATTNFORGE_FOLDERS)
  if(TARGET attnforge_${folder})
    list(APPEND ATTNFORGE_OBJECT_LIBRARIES attnforge_${folder})
  endif()
endforeach()

# Objects only, no usage requirements: they would have to be exported with the installed target.
add_library(attnforge_static STATIC)
add_library(attnforge_shared SHARED)
foreach(library IN LISTS ATTNFORGE_OBJECT_LIBRARIES)
  target_sources(attnforge_static PRIVATE $<TARGET_OBJECTS:${library}>)
endforeach()
target_sources(attnforge_static PRIVATE $<TARGET_OBJECTS:attnforge_fmt>)
target_link_libraries(attnforge_shared PRIVATE ${ATTNFORGE_OBJECT_LIBRARIES})

include(${PROJECT_SOURCE_DIR}/cmake/attnforgeStaticDependencies.cmake)
target_link_libraries(attnforge_static PRIVATE attnforge::static_dependencies)

foreach(library attnforge_static attnforge_shared)
  set_target_properties(${library} PROPERTIES OUTPUT_NAME attnforge LINKER_LANGUAGE CXX)
  target_compile_features(${library} INTERFACE cxx_std_20)
  target_include_directories(${library} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
set_target_properties(attnforge_static PROPERTIES EXPORT_NAME static)
set_target_properties(attnforge_shared PROPERTIES EXPORT_NAME shared VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

# Only the public functions are visible; the version script is the list of them.
set(ATTNFORGE_EXPORTS ${PROJECT_SOURCE_DIR}/plan/exports.map)
target_link_options(attnforge_shared PRIVATE LINKER:--exclude-libs,ALL LINKER:-z,defs)
if(EXISTS ${ATTNFORGE_EXPORTS})
  target_link_options(attnforge_shared PRIVATE LINKER:--version-script=${ATTNFORGE_EXPORTS})
  set_target_properties(attnforge_shared PROPERTIES LINK_DEPENDS ${ATTNFORGE_EXPORTS})
endif()

# For programs of this tree that look inside: benchmarks.
add_library(attnforge_internal INTERFACE)
target_include_directories(attnforge_internal INTERFACE ${PROJECT_SOURCE_DIR}/templates)
target_link_libraries(attnforge_internal INTERFACE attnforge_flags attnforge_cuda_headers attnforge_static)

add_library(attnforge::static ALIAS attnforge_static)
add_library(attnforge::shared ALIAS attnforge_shared)
add_library(attnforge::attnforge ALIAS attnforge_shared)
