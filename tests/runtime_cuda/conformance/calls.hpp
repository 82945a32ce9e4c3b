// The calls whose seconds make a cost table: those of atlasc/targets/cpu/calibration.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "atlasc/engine.hpp"
#include "atlasc/interface.hpp"

namespace conformance {

constexpr std::size_t few = 2, many = 8;   ///< rotations of two hoisted calls
constexpr std::size_t plaintexts = 8;      ///< of a measured sum
constexpr std::size_t period = 256;        ///< slots after which the plaintexts of a transform repeat

inline std::vector<std::size_t> amounts(std::size_t count) {
    std::vector<std::size_t> found(count);
    std::iota(found.begin(), found.end(), std::size_t{1});
    return found;
}

/// Gives an interface the rotations of the calls.
inline void add_rotations(atlasc::Interface& interface) {
    for (const std::size_t amount : amounts(many)) {
        int& level = interface.keys.rotations[amount];
        level = std::max(level, interface.parameters.max_level);
    }
}

/// Levels at which a set is priced, up to its highest.
inline std::set<int> priced_levels(int top) {
    std::set<int> levels;
    for (const double fraction : {0.05, 0.25, 0.6, 1.0}) {
        levels.insert(std::max(1, static_cast<int>(std::lround(fraction * top))));
    }
    return levels;
}

inline atlasc::Vector random_slots(std::size_t slots) {
    std::mt19937_64 random(7);
    std::uniform_real_distribution<double> number(-1.0, 1.0);
    atlasc::Vector vector(slots);
    std::generate(vector.begin(), vector.end(), [&] { return number(random); });
    return vector;
}

/// Numbers of a measured transform's parts. Its steps are rotations by 1, 2, ..., or one by 0.
struct Blocks {
    std::size_t operands, babies, giants, results;
    bool dense = false;
};

/// Calls `set(name, call)` for the server's calls on two ciphertexts of one level.
class Calls {
public:
    using Set = std::function<void(const char*, const std::function<void()>&)>;

    Calls(atlasc::Engine& server, atlasc::Vector vector)
        : server_(server), vector_(std::move(vector)) {}

    void each(const atlasc::Ciphertext& x, const atlasc::Ciphertext& y, const Set& set) const {
        set("add", [&] { server_.add(x, y); });
        set("negate", [&] { server_.negate(x); });
        set("times_i", [&] { server_.times_i(x); });
        set("add_plain", [&] { server_.add_plain(x, vector_); });
        set("add_scalar", [&] { server_.add_plain(x, 0.3); });
        set("rotate", [&] { server_.rotate(x, 1); });
        set("few", [&] { server_.rotate_many(x, amounts(few)); });
        set("many", [&] { server_.rotate_many(x, amounts(many)); });
        set("mul", [&] { server_.settle({server_.mul(x, y)}); });
        set("mul_lazy", [&] { server_.mul(x, y); });
        set("square", [&] { server_.settle({server_.square(x)}); });
        set("mul_scalar", [&] { server_.mul_plain(x, 0.3); });
        set("scalar", [&] { server_.settle({server_.mul_plain(x, 0.3)}); });
        const std::vector<atlasc::Plaintext> vectors(plaintexts, vector_);
        const atlasc::Ciphertexts xs(plaintexts, x);
        set("mul_plain", [&] { server_.dot_plain(xs, vectors); });
        transform("transform_results", x, {1, 0, 0, 8}, set);
        transform("transform_giants", x, {1, many, many, 1}, set);
        transform("transform_operands", x, {12, 1, 0, 4}, set);
        transform("transform_babies", x, {3, many, 0, 4}, set);
        transform("transform_products", x, {12, many, 0, 24}, set);
        transform("transform_vectors", x, {1, 4, 0, 8, true}, set);
    }

private:
    void transform(const char* name, const atlasc::Ciphertext& x, const Blocks& blocks,
                   const Set& set) const {
        // An identity of 0: no engine keeps the plaintext.
        const std::size_t repeats = blocks.dense ? 1 : server_.slots() / period;
        const atlasc::Vector numbers(
            vector_.begin(),
            vector_.begin() + static_cast<std::ptrdiff_t>(vector_.size() / repeats));
        const atlasc::Plaintext plaintext =
            atlasc::Deferred{0, [&numbers] { return numbers; }, repeats};
        const auto steps_of = [](std::size_t count) {
            return count == 0 ? std::vector<std::size_t>{0} : amounts(count);
        };
        std::vector<atlasc::GiantStep> steps;
        for (std::size_t result = 0; result < blocks.results; ++result) {
            for (const std::size_t giant : steps_of(blocks.giants)) {
                steps.push_back({result, giant, {}});
                for (std::size_t operand = 0; operand < blocks.operands; ++operand) {
                    for (const std::size_t baby : steps_of(blocks.babies)) {
                        steps.back().terms.emplace(atlasc::BabyStep{operand, baby}, plaintext);
                    }
                }
            }
        }
        const atlasc::Ciphertexts xs(blocks.operands, x);
        set(name, [&] { server_.transform(xs, steps, false); });
    }

    atlasc::Engine& server_;
    atlasc::Vector vector_;
};

}  // namespace conformance
