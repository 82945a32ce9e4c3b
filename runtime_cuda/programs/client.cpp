// atlasc-client --program BUNDLE keygen|encrypt|decrypt ...: the client of any compiled program.
#include "atlasc/roles.hpp"

int main(int argc, char** argv) { return atlasc::client_main(argc, argv); }
