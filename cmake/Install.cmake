# What `cmake --install` puts where: headers, both libraries, the CLI, the Python package, CMake and pkg-config files. The Python
# wheel is made of the components library, headers and program.
include(CMakePackageConfigHelpers)
include(${PROJECT_SOURCE_DIR}/cmake/InstallNvrtc.cmake)
set(ATTNFORGE_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/attnforge)

install(DIRECTORY include/attnforge DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT headers FILES_MATCHING PATTERN "*.h")
install(TARGETS attnforge_shared EXPORT attnforgeTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
if(TARGET attnforge_torch)  # OPTIONAL: of a build of the library alone it is not there
  install(TARGETS attnforge_torch LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library OPTIONAL)
endif()
install(EXPORT attnforgeTargets NAMESPACE attnforge:: DESTINATION ${ATTNFORGE_CMAKE_DIR} COMPONENT headers)
# An export of its own: the static library is offered only where its dependencies are.
install(TARGETS attnforge_static EXPORT attnforgeStaticTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(EXPORT attnforgeStaticTargets NAMESPACE attnforge:: DESTINATION ${ATTNFORGE_CMAKE_DIR} COMPONENT development)
attnforge_install_nvrtc("${ATTNFORGE_CUDA_HEADERS_FOUND}")

configure_package_config_file(cmake/attnforgeConfig.cmake.in ${PROJECT_BINARY_DIR}/cmake/attnforgeConfig.cmake
  INSTALL_DESTINATION ${ATTNFORGE_CMAKE_DIR} PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/attnforgeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/attnforgeConfig.cmake ${PROJECT_BINARY_DIR}/cmake/attnforgeConfigVersion.cmake
        DESTINATION ${ATTNFORGE_CMAKE_DIR} COMPONENT headers)
install(FILES cmake/attnforgeStaticDependencies.cmake DESTINATION ${ATTNFORGE_CMAKE_DIR} COMPONENT development)
# Relative, as in the CMake files: an installed package may be moved.
file(RELATIVE_PATH ATTNFORGE_PREFIX_FROM_PKGCONFIG /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
set(ATTNFORGE_PKGCONFIG_NVRTC "")
if(ATTNFORGE_NVRTC_INSTALLED)
  set(ATTNFORGE_PKGCONFIG_NVRTC " -Wl,-rpath,\${libdir}/attnforge")
endif()
configure_file(cmake/attnforge.pc.in ${PROJECT_BINARY_DIR}/cmake/attnforge.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cmake/attnforge.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

if(TARGET attnforge_cli)
  install(TARGETS attnforge_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
endif()
install(DIRECTORY python/attnforge DESTINATION ${CMAKE_INSTALL_DATADIR}/attnforge/python COMPONENT python
        FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN "py.typed")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/attnforge COMPONENT development)
