# Finds Phantom-FHE where the user built or installed it; -DPhantom_ROOT=FOLDER says where.
#
# Phantom::Phantom      the library and its headers
#
# Phantom's own CMake package is not used: it tells no include directories, and installs itself into
# the root of the file system unless CMAKE_INSTALL_LIBDIR and CMAKE_INSTALL_INCLUDEDIR are set.
find_path(Phantom_INCLUDE_DIR ntt.cuh PATH_SUFFIXES include/phantom include)
find_library(Phantom_LIBRARY Phantom PATH_SUFFIXES lib lib64 build/lib)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Phantom
  REQUIRED_VARS Phantom_LIBRARY Phantom_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "build Phantom-FHE, and name its folder with -DPhantom_ROOT=")
if(Phantom_FOUND AND NOT TARGET Phantom::Phantom)
  add_library(Phantom::Phantom UNKNOWN IMPORTED)
  set_target_properties(Phantom::Phantom PROPERTIES
    IMPORTED_LOCATION ${Phantom_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${Phantom_INCLUDE_DIR})
endif()
