// Numbers of the engine, for comparison with what they have to be:
//   chacha20           one block of RFC 8439, section 2.3.2
//   reduce Q LOW HIGH  LOW + 2^64 HIGH modulo a prime
//   digits NAME        of a key switch at each level of a bootstrap's parameters, N = 2^16
//   samples            of random polynomials at N = 2^11: counts and moments
#include <cmath>
#include <iostream>
#include <set>
#include <string>

#include "ckks/ckks_engine.hpp"
#include "ckks/keys/sampling.hpp"
#include "tests/runtime_cuda/conformance/programs.hpp"

namespace {

using namespace atlasc::ckks;

void block() {
    Seed seed{};
    for (std::uint32_t at = 0; at < 8; ++at) {
        seed.words[at] = 0x03020100U + 0x04040404U * at;
    }
    const std::uint32_t nonce[3] = {0x09000000U, 0x4a000000U, 0};
    std::uint32_t words[16];
    chacha20(seed, 1, nonce, words);
    for (const std::uint32_t word : words) {
        std::cout << word << ' ';
    }
}

Prime prime_of(Word q) {
    const Wide ratio = ~static_cast<Wide>(0) / q;
    return {q, static_cast<Word>(ratio), static_cast<Word>(ratio >> 64)};
}

double centred(Word value, const Prime& q) {
    return value > q.value / 2 ? -static_cast<double>(q.value - value)
                               : static_cast<double>(value);
}

void samples() {
    const atlasc::Interface interface = conformance::leveled(11, 2, 1);
    const Ground ground(chain_of(interface.parameters), 0);
    const Ring& ring = ground.ring;
    const Words limbs = ring.polynomial(2);
    const Seed seed = fresh_seed();
    sample_error(ring, {seed, 0}, limbs.get(), 0, 2);
    const std::vector<Word> errors = downloaded(limbs.get(), 2 * ring.degree());
    double sum = 0.0;
    double squares = 0.0;
    bool same = true;
    for (std::size_t at = 0; at < ring.degree(); ++at) {
        const double error = centred(errors[at], ring.chain().q[0]);
        same = same && error == centred(errors[ring.degree() + at], ring.chain().q[1]);
        sum += error;
        squares += error * error;
    }
    std::cout << sum / static_cast<double>(ring.degree()) << ' '
              << squares / static_cast<double>(ring.degree()) << ' ' << same << ' ';
    sample_uniform(ring, {seed, 0}, limbs.get(), 0, 2);
    const std::vector<Word> uniform = downloaded(limbs.get(), 2 * ring.degree());
    double mean = 0.0;
    for (std::size_t at = 0; at < ring.degree(); ++at) {
        mean += static_cast<double>(uniform[at]) / static_cast<double>(ring.chain().q[0].value);
    }
    std::cout << mean / static_cast<double>(ring.degree()) << ' '
              << std::set<Word>(uniform.begin(), uniform.end()).size() << ' ';
    int counts[3] = {0, 0, 0};
    for (const int value : uniform_secret(ring.degree())) {
        ++counts[value + 1];
    }
    int weight = 0;
    for (const int value : sparse_secret(ring.degree(), 32)) {
        weight += value * value;
    }
    std::cout << counts[0] << ' ' << counts[1] << ' ' << counts[2] << ' ' << weight;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string command = argv[1];
    if (command == "chacha20") {
        block();
    } else if (command == "reduce" && argc == 5) {
        const Wide x = static_cast<Wide>(std::stoull(argv[4])) << 64 | std::stoull(argv[3]);
        std::cout << reduce(x, prime_of(std::stoull(argv[2])));
    } else if (command == "digits" && argc == 3) {
        const Chain chain = chain_of(conformance::bootstrapped(16, argv[2]).parameters);
        for (const std::size_t limbs : chain.limbs) {
            std::cout << digits_of(chain, limbs) << ' ';
        }
    } else {
        samples();
    }
    return 0;
}
