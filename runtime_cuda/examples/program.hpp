// A program that client and server agree on: y = w x of eight encrypted numbers x.
#pragma once

#include "atlasc/context.hpp"
#include "atlasc/interface.hpp"

inline const atlasc::Interface& interface() {
    static const atlasc::Interface facts = [] {
        atlasc::Interface made{};
        made.model = "weighted_sum";
        made.identity = std::string(64, 'a');  // whoever changes the program changes this
        // N = 2^13 and primes of 180 bits in all: 128 bits of security. Two products.
        const atlasc::Moduli moduli{{50, 40, 40}, {50}, 40};
        made.parameters = {4096, 2, std::nullopt, 1, moduli};
        made.keys = {{{1, 1}, {2, 1}, {4, 1}}, 2, -1};  // rotations by 1, 2 and 4 up to level 1
        // 8 numbers in the low bits of the slot number, and the same in all 512 runs of 8 slots.
        const atlasc::Layout x("[*:9 d:3 |  | b=1 t=1 g=1 d=8]");
        const atlasc::Layout y("[*:12 |  | b=1 t=1 g=1 d=1]");
        made.inputs.push_back({"x", {1, 8}, x, 2, 1.0, false, 1.0});      // numbers up to 1
        made.outputs.push_back({"y", {1, 1}, y, {1.0}, {0.0}, 1, 8.0});  // up to 8
        return made;
    }();
    return facts;
}

/// What the server computes; w = (0, 1/8, ..., 7/8) is known to it alone.
inline atlasc::Values execute(atlasc::Context& context, atlasc::Values inputs) {
    atlasc::Engine& engine = context.engine();
    atlasc::Vector weights(engine.slots());
    for (std::size_t at = 0; at < weights.size(); ++at) {
        weights[at] = static_cast<double>(at % 8) / 8.0;
    }
    atlasc::Ciphertext sum = engine.mul_plain(inputs.at("x").at(0), weights);
    for (const std::size_t amount : {1, 2, 4}) {
        sum = engine.add(sum, engine.rotate(sum, amount));
    }
    return {{"y", {sum}}};
}
