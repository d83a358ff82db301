# `cmake --install`: headers, both libraries, a CMake package (find_package(ytp)) and ytp.pc.
include(CMakePackageConfigHelpers)

install(DIRECTORY csrc/include/ytp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
# ytp_flags only carries compiler options of this build, but a static library must name what it links.
install(TARGETS ytp_shared ytp_static ytp_flags EXPORT ytpTargets)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ytp)
install(EXPORT ytpTargets NAMESPACE ytp:: DESTINATION ${package_dir})
configure_package_config_file(cmake/ytpConfig.cmake.in ytpConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(ytpConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ytpConfig.cmake ${PROJECT_BINARY_DIR}/ytpConfigVersion.cmake
  DESTINATION ${package_dir})

configure_file(cmake/ytp.pc.in ytp.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ytp.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
