// server EVALUATION_KEY QUERY ANSWER: it has no secret key, and sees ciphertexts alone.
#include "atlasc/roles.hpp"
#include "program.hpp"

int main(int argc, char** argv) {
    return atlasc::reported([&] {
        if (argc != 4) {
            throw atlasc::Error("which files?", "", "server EVALUATION_KEY QUERY ANSWER");
        }
        // Any number of threads may use one server.
        atlasc::Server server(interface(), execute, argv[1]);
        const atlasc::Bytes answer = server.execute(argv[2]);
        atlasc::write_new(argv[3], answer.data(), answer.size(), atlasc::Access::shared);
    });
}
