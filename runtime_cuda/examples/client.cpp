// client keygen KEYS           makes secret.key, evaluation.key and a ledger in a new folder
// client encrypt KEYS QUERY    encrypts 8 numbers from standard input
// client decrypt KEYS ANSWER   prints the answer
#include <iostream>

#include "atlasc/roles.hpp"
#include "program.hpp"

int main(int argc, char** argv) {
    return atlasc::reported([&] {
        const std::string command = argc > 1 ? argv[1] : "";
        if (argc != (command == "keygen" ? 3 : 4)) {
            throw atlasc::Error("which command?", "", "client keygen KEYS | encrypt | decrypt");
        }
        const std::string keys = argv[2];
        if (command == "keygen") {
            atlasc::make_keys(interface(), keys);
            return;
        }
        atlasc::Client client(interface(), keys + "/secret.key");
        if (command == "encrypt") {
            atlasc::Tensor x{{1, 8}, atlasc::Vector(8)};
            for (double& number : x.values) {
                std::cin >> number;
            }
            const atlasc::Bytes query = client.encrypt({{"x", x}}).bytes;
            atlasc::write_new(argv[3], query.data(), query.size(), atlasc::Access::shared);
        } else {
            const atlasc::Answers found = client.decrypt(argv[3]);
            std::cout << (found.refused.empty() ? "" : "no answer: ")
                      << found.outputs.at("y").values.at(0) << '\n';
        }
    });
}
