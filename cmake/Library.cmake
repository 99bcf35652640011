# libattnforge.so and libattnforge.a out of the folders' object libraries. SQLite, zstd and xxhash are inside the shared library;
# users of the static one link them (attnforgeConfig.cmake and attnforge.pc say so).
set(ATTNFORGE_OBJECT_LIBRARIES)
foreach(folder IN LISTS ATTNFORGE_FOLDERS)
  foreach(library attnforge_${folder} attnforge_${folder}_tools)
    if(TARGET ${library})
      list(APPEND ATTNFORGE_OBJECT_LIBRARIES ${library})
    endif()
  endforeach()
endforeach()

# Objects only, no usage requirements: they would have to be exported with the installed target.
add_library(attnforge_static STATIC)
add_library(attnforge_shared SHARED)
target_link_libraries(attnforge_shared PRIVATE ${ATTNFORGE_OBJECT_LIBRARIES})
set(ATTNFORGE_OBJECTS)
foreach(library IN LISTS ATTNFORGE_OBJECT_LIBRARIES ITEMS attnforge_fmt)
  list(APPEND ATTNFORGE_OBJECTS $<FILTER:$<TARGET_OBJECTS:${library}>,EXCLUDE,\\.gch$>)
endforeach()
find_program(ATTNFORGE_LD ld.bfd)  # of GNU binutils, as are the next two: other linkers drop no sections in such a link
find_program(ATTNFORGE_NM nm)
find_program(ATTNFORGE_OBJCOPY objcopy)
mark_as_advanced(ATTNFORGE_LD ATTNFORGE_NM ATTNFORGE_OBJCOPY)
if(CMAKE_BUILD_TYPE MATCHES "^(Release|MinSizeRel)$" AND NOT ATTNFORGE_SANITIZE AND ATTNFORGE_LD AND ATTNFORGE_NM AND ATTNFORGE_OBJCOPY)
  # One object without names of its insides: half the size, and a program's own fmt or JSON library cannot clash with ours.
  set(ATTNFORGE_MERGED ${PROJECT_BINARY_DIR}/attnforge.o)
  file(GENERATE OUTPUT ${ATTNFORGE_MERGED}.objects CONTENT "\"$<JOIN:${ATTNFORGE_OBJECTS},\"\n\">\"\n")
  add_custom_command(OUTPUT ${ATTNFORGE_MERGED}
    COMMAND ${CMAKE_COMMAND} -DLD=${ATTNFORGE_LD} -DNM=${ATTNFORGE_NM} -DOBJCOPY=${ATTNFORGE_OBJCOPY} -DSHARED=$<TARGET_FILE:attnforge_shared>
            -DOBJECTS=${ATTNFORGE_MERGED}.objects -DOUTPUT=${ATTNFORGE_MERGED} -P ${PROJECT_SOURCE_DIR}/cmake/MergeObjects.cmake
    DEPENDS ${ATTNFORGE_OBJECTS} attnforge_shared ${PROJECT_SOURCE_DIR}/cmake/MergeObjects.cmake
    COMMENT "Merging the objects of libattnforge.a"
    VERBATIM)
  target_sources(attnforge_static PRIVATE ${ATTNFORGE_MERGED})
  set_source_files_properties(${ATTNFORGE_MERGED} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
else()
  target_sources(attnforge_static PRIVATE ${ATTNFORGE_OBJECTS})
endif()

include(${PROJECT_SOURCE_DIR}/cmake/attnforgeStaticDependencies.cmake)
target_link_libraries(attnforge_static PRIVATE attnforge::static_dependencies)

foreach(library attnforge_static attnforge_shared)
  set_target_properties(${library} PROPERTIES OUTPUT_NAME attnforge LINKER_LANGUAGE CXX)
  target_compile_features(${library} INTERFACE cxx_std_20)
  target_include_directories(${library} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
set_target_properties(attnforge_static PROPERTIES EXPORT_NAME static)
# One file, libattnforge.so.0.1, and the name for linkers: a Python wheel keeps no links.
set_target_properties(attnforge_shared PROPERTIES EXPORT_NAME shared
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

# Only what ATTNFORGE_API marks is visible (CMakeLists.txt); the version script keeps templates of others inside as well.
set(ATTNFORGE_EXPORTS ${PROJECT_SOURCE_DIR}/plan/exports.map)
target_link_options(attnforge_shared PRIVATE LINKER:--exclude-libs,ALL LINKER:--gc-sections)
if(NOT (ATTNFORGE_SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES Clang))  # clang links a sanitizer into programs alone
  target_link_options(attnforge_shared PRIVATE LINKER:-z,defs)
endif()
if(EXISTS ${ATTNFORGE_EXPORTS})
  target_link_options(attnforge_shared PRIVATE LINKER:--version-script=${ATTNFORGE_EXPORTS})
  set_target_properties(attnforge_shared PROPERTIES LINK_DEPENDS ${ATTNFORGE_EXPORTS})
endif()

attnforge_for_old_glibc(attnforge_shared)

add_library(attnforge::static ALIAS attnforge_static)
add_library(attnforge::shared ALIAS attnforge_shared)
add_library(attnforge::attnforge ALIAS attnforge_shared)
