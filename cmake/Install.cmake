# What `cmake --install` puts where: headers, both libraries, the CLI, the Python package, CMake and pkg-config files.
include(CMakePackageConfigHelpers)
set(ATTNFORGE_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/attnforge)

install(DIRECTORY include/attnforge DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS attnforge_shared EXPORT attnforgeTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT attnforgeTargets NAMESPACE attnforge:: DESTINATION ${ATTNFORGE_CMAKE_DIR})
# An export of its own: the static library is offered only where its dependencies are.
install(TARGETS attnforge_static EXPORT attnforgeStaticTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT attnforgeStaticTargets NAMESPACE attnforge:: DESTINATION ${ATTNFORGE_CMAKE_DIR})

configure_package_config_file(cmake/attnforgeConfig.cmake.in ${PROJECT_BINARY_DIR}/cmake/attnforgeConfig.cmake
  INSTALL_DESTINATION ${ATTNFORGE_CMAKE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/attnforgeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/attnforgeConfig.cmake ${PROJECT_BINARY_DIR}/cmake/attnforgeConfigVersion.cmake
              cmake/attnforgeStaticDependencies.cmake
        DESTINATION ${ATTNFORGE_CMAKE_DIR})
# Relative, as in the CMake files: an installed package may be moved.
file(RELATIVE_PATH ATTNFORGE_PREFIX_FROM_PKGCONFIG /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/attnforge.pc.in ${PROJECT_BINARY_DIR}/cmake/attnforge.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cmake/attnforge.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(TARGET attnforge_cli)
  install(TARGETS attnforge_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(EXISTS ${PROJECT_SOURCE_DIR}/python/attnforge)
  install(DIRECTORY python/attnforge DESTINATION ${CMAKE_INSTALL_DATADIR}/attnforge/python FILES_MATCHING PATTERN "*.py")
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/attnforge)
