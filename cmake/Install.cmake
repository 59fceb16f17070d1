# SPDX-License-Identifier: Apache-2.0
# The toolkit: <prefix>/{include/{acl,aclnn,aclnnop}, lib64, set_env.sh}. The libraries install
# themselves in add_aclgrad_library. Nothing in the prefix but set_env.sh's last resort knows where
# it is: it may be moved.

include(CMakePackageConfigHelpers)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION include FILES_MATCHING PATTERN "*.h")

set(package_folder lib64/cmake/aclgrad)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/aclgradConfig.cmake.in
  ${PROJECT_BINARY_DIR}/aclgradConfig.cmake
  INSTALL_DESTINATION ${package_folder}
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/aclgradConfigVersion.cmake
  COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/aclgradConfig.cmake
  ${PROJECT_BINARY_DIR}/aclgradConfigVersion.cmake
  DESTINATION ${package_folder})
install(EXPORT aclgradTargets NAMESPACE aclgrad:: DESTINATION ${package_folder})

configure_file(${PROJECT_SOURCE_DIR}/cmake/aclgrad.pc.in ${PROJECT_BINARY_DIR}/aclgrad.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/aclgrad.pc DESTINATION lib64/pkgconfig)

# The prefix is known at install time only (cmake --install --prefix).
install(CODE "set(template \"${PROJECT_SOURCE_DIR}/cmake/set_env.sh.in\")
set(result \"${PROJECT_BINARY_DIR}/set_env.sh\")")
install(CODE [[
get_filename_component(ACLGRAD_PREFIX "${CMAKE_INSTALL_PREFIX}" ABSOLUTE)
configure_file("${template}" "${result}" @ONLY)
]])
install(FILES ${PROJECT_BINARY_DIR}/set_env.sh DESTINATION .)
