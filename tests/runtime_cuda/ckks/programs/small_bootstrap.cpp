// A whole bootstrap on residues, with the moduli of fourteen_levels, at a ring that is too small to
// be secure: what backend.hpp refuses, the engine itself can do.
//
//     bootstrap FILE LEVEL...      levels that bootstraps end at, besides the highest
#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "atlasc/base/error.hpp"
#include "ckks/ckks_engine.hpp"
#include "ckks/keys/key_files.hpp"
#include "tests/runtime_cuda/conformance/programs.hpp"

namespace {

using namespace atlasc;

double largest_error(const ComplexVector& found, const Vector& expected) {
    double error = 0.0;
    for (std::size_t slot = 0; slot < expected.size(); ++slot) {
        error = std::max(error, std::abs(found[slot] - expected[slot]));
    }
    return error;
}

int run(const std::string& path, const std::vector<int>& levels) {
    const conformance::Bootstrapped set = conformance::bootstrapped(path);
    const Interface& interface = set.interface;
    auto ground = std::make_unique<ckks::Ground>(ckks::chain_of(interface.parameters), 0);
    ckks::Role role = ckks::fresh_role(interface, *ground);
    const int top = *interface.parameters.bootstrap_level;
    ckks::CkksEngine engine(std::move(ground), std::move(role));
    engine.bootstrap_by(set.record);

    std::mt19937_64 random(11);
    std::uniform_real_distribution<double> number(-1.0, 1.0);
    Vector uniform(engine.slots());
    std::generate(uniform.begin(), uniform.end(), [&] { return number(random); });
    const Vector ones(engine.slots(), 1.0);
    Ciphertexts refreshed = engine.bootstrap_many(
        {engine.encrypt(uniform, 3), engine.encrypt(ones, 6), engine.encrypt(uniform, 4)},
        engine.slots(), top);
    const std::size_t period = engine.slots() / conformance::copies;
    const Vector few = conformance::repeated(uniform, period);
    for (const Ciphertext& x : engine.bootstrap_many(
             {engine.encrypt(few, 3), engine.encrypt(ones, 6), engine.encrypt(few, 4)}, period, top)) {
        refreshed.push_back(x);
    }
    const std::vector<const Vector*> expected = {&uniform, &ones, &uniform, &few, &ones, &few};
    for (std::size_t at = 0; at < refreshed.size(); ++at) {
        const double error = largest_error(engine.decrypt_complex(refreshed[at]), *expected[at]);
        std::cout << engine.level(refreshed[at]) << ' ' << std::log2(error) << '\n';
    }
    for (const int level : levels) {
        const Ciphertexts wide = engine.bootstrap_many(
            {engine.encrypt(uniform, 3), engine.encrypt(ones, top)}, engine.slots(), level);
        const Ciphertexts narrow = engine.bootstrap_many({engine.encrypt(few, 4)}, period, level);
        const Ciphertext sum = engine.add(engine.mul(wide[0], wide[1]), narrow[0]);
        Vector both(uniform.size());
        std::transform(uniform.begin(), uniform.end(), few.begin(), both.begin(), std::plus<>());
        std::cout << "to " << level << ' ' << engine.level(wide[0]) << ' '
                  << engine.level(narrow[0]) << ' ' << engine.level(sum);
        const std::vector<std::pair<Ciphertext, const Vector*>> slots = {
            {wide[0], &uniform}, {wide[1], &ones}, {narrow[0], &few}, {sum, &both}};
        for (const auto& [found, wanted] : slots) {
            std::cout << ' ' << std::log2(largest_error(engine.decrypt_complex(found), *wanted));
        }
        std::cout << '\n';
    }
    const ComplexVector product =
        engine.decrypt_complex(engine.mul(refreshed[0], refreshed[2]));
    Vector square(uniform.size());
    std::transform(uniform.begin(), uniform.end(), square.begin(), [](double x) { return x * x; });
    std::cout << engine.level(engine.mul(refreshed[0], refreshed[2])) << ' '
              << std::log2(largest_error(product, square)) << '\n';
    std::cout << (engine.memory().peak() >> 20) << '\n';
    return 0;
}

}  // namespace

int main(int count, char** argv) {
    try {
        std::vector<int> levels;
        std::transform(argv + 2, argv + count, std::back_inserter(levels),
                       [](const char* level) { return std::stoi(level); });
        return run(argv[1], levels);
    } catch (const Error& error) {
        std::cerr << "error: " << error.what() << ": " << error.why << '\n';
        return 2;
    }
}
