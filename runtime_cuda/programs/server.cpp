// atlasc-server --program BUNDLE --keys EVALUATION_KEY --query QUERY --output ANSWER: the server of any
// compiled program. It has no secret key, and sees ciphertexts alone.
#include "atlasc/roles.hpp"

int main(int argc, char** argv) { return atlasc::server_main(argc, argv); }
