// Rotations with keys that a server derives: the greatest error of each, with new keys and with those of
// files. Prints the amount, the level and log2 of the error.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <string>

#include "atlasc/backend.hpp"
#include "atlasc/base/error.hpp"

namespace {

using namespace atlasc;

Interface interface_of_tests() {
    Interface interface{};
    interface.model = "derived keys";
    interface.parameters = {std::size_t{1} << 13, 4, std::nullopt, 1,
                            Moduli{{30, 25, 25, 25, 25}, {30, 30, 30}, 25, {}}};
    // Two roots, levels that fall along a chain, one from a key that is sent, and the most hops.
    interface.keys.rotations = {{1, 2}, {2, 2}, {3, 1}, {4, 1}, {5, 0}, {6, 0}, {7, 0}, {8, 0},
                                {9, 0}, {100, 4}, {101, 2}};
    interface.keys.derivation = {2, 4, {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {7, 1},
                                        {8, 1}, {9, 5}, {101, 1}}};
    return interface;
}

void rotate(const Interface& interface, Engine& client, Engine& server) {
    Vector vector(client.slots());
    for (std::size_t at = 0; at < vector.size(); ++at) {
        vector[at] = std::sin(static_cast<double>(at));
    }
    for (const auto& [amount, level] : interface.keys.rotations) {
        const Ciphertext sent = client.encrypt(vector, level);
        const Ciphertext turned = server.rotate(server.load(client.save(sent)), amount);
        const Vector found = client.decrypt(client.load(server.save(turned)));
        double most = 0.0;
        for (std::size_t at = 0; at < vector.size(); ++at) {
            const double expected = vector[(at + amount) % vector.size()];
            most = std::max(most, std::fabs(found[at] - expected));
        }
        std::cout << amount << ' ' << level << ' ' << std::log2(most) << '\n';
    }
}

}  // namespace

int main(int, char** argv) {
    try {
        const Interface interface = interface_of_tests();
        const std::unique_ptr<Engine> both = ckks_backend.fresh_engine(interface, {});
        rotate(interface, *both, *both);
        const std::string folder = argv[1];
        const KeyPaths paths{folder + "/secret.key", folder + "/evaluation.key"};
        ckks_backend.generate_keys(interface, paths, {});
        const auto client = ckks_backend.client_engine(interface, PlainFile(paths.secret));
        const auto server = ckks_backend.server_engine(interface, PlainFile(paths.evaluation), 0);
        rotate(interface, *client, *server);
    } catch (const Error& error) {
        std::cerr << error.what() << ": " << error.why << '\n';
        return 1;
    }
    return 0;
}
