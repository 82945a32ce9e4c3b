// Numbers of the engine, for comparison with what they have to be:
//   chacha20 WORDS     the block of a key, a counter and a nonce, and the same from every lane of
//                      the processor's vectors where it has them
//   reduce Q LOW HIGH  LOW + 2^64 HIGH modulo a prime
//   digits NAME        of a key switch at each level of a bootstrap's parameters, N = 2^16
#include <algorithm>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "ckks/ring/chain.hpp"
#include "ckks/keys/sampling.hpp"
#include "devices/host/vectors/cpu.hpp"
#include "devices/host/vectors/ntt.hpp"
#include "devices/host/vectors/vector_kernels.hpp"
#include "tests/runtime_cuda/conformance/programs.hpp"

namespace {

using namespace atlasc::ckks;

template <typename Number>
void print(Number number) {
    std::cout << number << ' ';
}

void block(const std::vector<std::uint32_t>& words) {
    Seed seed{};
    std::copy(words.begin(), words.begin() + 8, seed.words);
    const std::uint32_t nonce[3] = {words[9], words[10], words[11]};
    std::uint32_t portable[16];
    chacha20(seed, words[8], nonce, portable);
    std::for_each(portable, portable + 16, print<std::uint32_t>);
    for (std::uint32_t lane = 0; cpu() != Cpu::portable && lane < 16; ++lane) {
        constexpr std::uint32_t step = 4;
        std::uint32_t blocks[16][16];
        vector_kernels().chacha20(blocks, seed, words[8] - step * lane, step, nonce);
        std::for_each(blocks, blocks + 16, [lane](const auto& word) { print(word[lane]); });
    }
}

Prime prime_of(Word q) {
    const Wide ratio = ~static_cast<Wide>(0) / q;
    return {q, static_cast<Word>(ratio), static_cast<Word>(ratio >> 64)};
}

}  // namespace

int main(int argc, char** argv) {
    const std::string command = argv[1];
    if (command == "chacha20" && argc == 14) {
        std::vector<std::uint32_t> words;
        std::transform(argv + 2, argv + argc, std::back_inserter(words), [](const char* word) {
            return static_cast<std::uint32_t>(std::stoul(word));
        });
        block(words);
    } else if (command == "reduce" && argc == 5) {
        const Wide x = static_cast<Wide>(std::stoull(argv[4])) << 64 | std::stoull(argv[3]);
        std::cout << reduce(x, prime_of(std::stoull(argv[2])));
    } else {
        const Chain chain = chain_of(conformance::bootstrapped(argv[2]).interface.parameters);
        for (const std::size_t limbs : chain.limbs) {
            print(digits_of(chain, limbs));
        }
    }
    return 0;
}
