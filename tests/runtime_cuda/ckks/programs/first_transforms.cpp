// The check of transforms when an engine starts: prints where it failed, what, why, and the remedy.
#include <iostream>
#include <memory>

#include "atlasc/base/error.hpp"
#include "ckks/plaintexts/encoder.hpp"
#include "ckks/ring/ring.hpp"

int main() {
    using namespace atlasc::ckks;
    const auto prime = [](Word q) {
        const Wide ratio = ~static_cast<Wide>(0) / q;
        return Prime{q, static_cast<Word>(ratio), static_cast<Word>(ratio >> 64)};
    };
    Chain chain;
    chain.degree = 2048;
    // 1 modulo 2^13: of 60, 60 and 50 bits, and a special one of 60.
    chain.q = {prime(1152921504606748673), prime(1152921504606683137), prime(1125899906826241)};
    chain.limbs = {1, 2, 3};
    chain.special = {prime(1152921504606584833)};
    chain.digits = {0, 1, 2, 3};
    chain.scales = {0x1p50, 0x1p50, 0x1p50};
    try {
        const auto memory = std::make_shared<Memory>(0);
        const Ring ring(*memory, chain);
        const Encoder encoder(ring);
    } catch (const atlasc::Error& error) {
        std::cout << error.where << '\n'
                  << error.what() << '\n'
                  << error.why << '\n'
                  << error.remedy << '\n';
    }
    return 0;
}
