# install.cmake - what `cmake --install` puts where, and which part of it each file belongs
# to:
#
#   program   weft, its prompt, man page, completions of shells, example plans
#   library   libweft, libweftlua, weft.so for Lua, and the modules that they open
#   dev       weft.h, and what CMake and pkg-config need to find the libraries
#   mpi       the MPI engine, which needs the MPI library that it was built with
#   cuda      the CUDA device and NCCL
#   rock      weft.so, and below weft/ the modules that it opens: what luarocks puts where Lua looks
#
# Paths are relative to the files themselves, so that an installed tree may be moved.
include(CMakePackageConfigHelpers)

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME program)
file(RELATIVE_PATH PC_TO_INCLUDE ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
     ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_file(cmake/weft.pc.in ${CMAKE_BINARY_DIR}/weft.pc @ONLY)

install(TARGETS weft-cli)
install(TARGETS weft weftlua-shared EXPORT weft-targets
        LIBRARY COMPONENT library NAMELINK_COMPONENT dev)
install(TARGETS weft-module LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/lua/5.4
        COMPONENT library)
install(TARGETS weft-module LIBRARY DESTINATION . COMPONENT rock EXCLUDE_FROM_ALL)
add_custom_target(module DEPENDS weft-module)
foreach(module ${MODULES})
  if(module STREQUAL weft_edit)
    set(part program)
  elseif(module STREQUAL weft_mpi)
    set(part mpi)
  elseif(module MATCHES "cuda|nccl")
    set(part cuda)
  else()
    set(part library)
    install(TARGETS ${module} LIBRARY DESTINATION weft COMPONENT rock EXCLUDE_FROM_ALL)
    add_dependencies(module ${module})
  endif()
  install(TARGETS ${module} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/weft COMPONENT ${part})
endforeach()

install(FILES vm/weft.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
install(FILES ${CMAKE_BINARY_DIR}/weft.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT dev)
set(WEFT_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
set_target_properties(weftlua-shared PROPERTIES EXPORT_NAME weftlua)
install(EXPORT weft-targets NAMESPACE weft:: DESTINATION ${WEFT_CMAKE_DIR} COMPONENT dev)
configure_package_config_file(cmake/weft-config.cmake.in ${CMAKE_BINARY_DIR}/weft-config.cmake
                              INSTALL_DESTINATION ${WEFT_CMAKE_DIR})
# Before 1.0 a new minor version may change what weft.h says.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/weft-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/weft-config.cmake
              ${CMAKE_BINARY_DIR}/weft-config-version.cmake
        DESTINATION ${WEFT_CMAKE_DIR} COMPONENT dev)

install(DIRECTORY plans/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)

# The manual page and what shells complete are printed by the program, from the tables that
# it reads its options by. One with sanitizers is not installed.
if(NOT WEFT_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  if(CMAKE_INSTALL_PREFIX STREQUAL /usr)
    set(zsh zsh/vendor-completions) # that of Debian's packages
  else()
    set(zsh zsh/site-functions)
  endif()
  set(PAGES "")
  function(page kind file folder)
    add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/pages/${file}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/pages
      COMMAND weft-cli completion ${kind} > ${CMAKE_BINARY_DIR}/pages/${file}
      DEPENDS weft-cli VERBATIM)
    install(FILES ${CMAKE_BINARY_DIR}/pages/${file} DESTINATION ${folder})
    set(PAGES ${PAGES} ${CMAKE_BINARY_DIR}/pages/${file} PARENT_SCOPE)
  endfunction()
  page(man weft.1 ${CMAKE_INSTALL_MANDIR}/man1)
  page(bash weft ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  page(zsh _weft ${CMAKE_INSTALL_DATADIR}/${zsh})
  page(schema weft.schema.json ${CMAKE_INSTALL_DATADIR}/weft)
  page(fish weft.fish ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  add_custom_target(pages ALL DEPENDS ${PAGES})
endif()
