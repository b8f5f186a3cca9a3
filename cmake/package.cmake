# package.cmake - Debian packages of the parts of install.cmake, for the preset "package":
# ./dev package builds and writes them. What they depend on is what their files link.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME weft)
set(CPACK_PACKAGE_CONTACT "the weft authors <weft@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "interpreter for parallel training plans")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program library dev)
if(WEFT_MPI)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
endif()

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_GENERATE_SHLIBS ON)

set(LIBRARY_PACKAGE libweft${PROJECT_VERSION_MAJOR})
set(SAME_VERSION "(= ${PROJECT_VERSION})")
function(deb component name section text depends)
  string(TOUPPER ${component} id)
  install(FILES ${CMAKE_SOURCE_DIR}/LICENSE RENAME copyright
          DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} COMPONENT ${component})
  set(CPACK_DEBIAN_${id}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${id}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${id}_DESCRIPTION "${text}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${id}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
endfunction()
deb(program weft science "interpreter for parallel training plans
 Checks plans of parallel training, proves that their programs cannot deadlock, and trains
 them, on virtual ranks or on machines of a cluster."
 "${LIBRARY_PACKAGE} ${SAME_VERSION}")
deb(library ${LIBRARY_PACKAGE} libs "library of the plan interpreter weft
 libweftlua and libweft for C, weft.so for Lua 5.4, and matrix products by oneDNN." "")
deb(dev libweft-dev libdevel "header of the plan interpreter weft
 weft.h, and what CMake and pkg-config need to find the libraries."
 "${LIBRARY_PACKAGE} ${SAME_VERSION}")
deb(mpi weft-mpi science "MPI engine of the plan interpreter weft
 Ranks that talk by Open MPI: weft run under mpirun or srun."
 "weft ${SAME_VERSION}, openmpi-bin")
include(CPack)
