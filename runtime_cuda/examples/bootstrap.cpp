// Encrypts numbers, uses up their levels, refreshes them by a bootstrap, and computes on.
// It takes 6 GB of memory, and half a minute on two cores.
#include <algorithm>
#include <cmath>
#include <iostream>

#include "atlasc/backend.hpp"
#include "atlasc/parameter_sets.hpp"
#include "atlasc/roles.hpp"

int main() {
    return atlasc::reported([] {
        const atlasc::ParameterSet set = atlasc::carried_parameter_set();
        atlasc::Interface interface{};
        interface.parameters = set.parameters;
        interface.keys = set.keys_with({1});  // rotations by 1, besides those of the bootstrap
        // Client and server in one: the keys stay in memory.
        const auto engine = atlasc::built_backend().fresh_engine(
            interface, [](const std::string& key, std::size_t made, std::size_t of) {
                std::cerr << "\rkey " << made + 1 << " of " << of << ": " << key << "          ";
            });
        engine->bootstrap_by(set.bootstrap);

        atlasc::Vector numbers(engine->slots());  // 32,768
        for (std::size_t at = 0; at < numbers.size(); ++at) {
            numbers[at] = std::sin(static_cast<double>(at));
        }
        const atlasc::Ciphertext x = engine->encrypt(numbers, 3);  // a bootstrap consumes three
        const atlasc::Ciphertext fresh = engine->bootstrap_many({x}, engine->slots(), 9).at(0);
        const atlasc::Ciphertext y = engine->rotate(engine->square(fresh), 1);
        const atlasc::Vector found = engine->decrypt(y);
        double error = 0.0;
        for (std::size_t at = 0; at < found.size(); ++at) {
            const double next = numbers[(at + 1) % numbers.size()];
            error = std::max(error, std::abs(found[at] - next * next));
        }
        std::cout << "level " << engine->level(fresh) << ", error " << error << '\n';
    });
}
