// Seconds of the engine cpu: keys, bootstraps, and what they are made of. Prints one JSON object.
//
//     bootstrap LOG_DEGREE SET ROUNDS
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <string>

#include "atlasc/error.hpp"
#include "ckks/keys/key_files.hpp"
#include "ckks/keys/key_maker.hpp"
#include "tests/runtime_cuda/conformance/programs.hpp"

namespace {

using namespace atlasc;

double seconds_of(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Of all threads of this process, in seconds.
double processor_seconds() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

double least(int rounds, const std::function<void()>& work) {
    double found = INFINITY;
    for (int round = 0; round < rounds; ++round) {
        found = std::min(found, seconds_of(work));
    }
    return found;
}

int run(int log_degree, const std::string& name, int rounds) {
    const Interface interface = conformance::bootstrapped(log_degree, name);
    auto ground = std::make_unique<ckks::Ground>(ckks::chain_of(interface.parameters), 0);
    const ckks::Ring& ring = ground->ring;
    const ckks::Coefficients secret = ckks::uniform_secret(ring.degree());
    const auto set = bootstrapping::named(name, static_cast<long>(ring.degree()));
    ckks::Role role{std::string(32, '0'), ckks::SecretKey(ring, secret), {}, set};
    const double keys = seconds_of([&] {
        const ckks::KeyMaker maker(ring, secret, ckks::fresh_seed());
        role.keys = maker.make(ckks::needs_of(interface, ring.chain()));
    });
    ckks::CkksEngine engine(std::move(ground), std::move(role));

    std::mt19937_64 random(1);
    std::uniform_real_distribution<double> number(-1.0, 1.0);
    Vector slots(engine.slots());
    std::generate(slots.begin(), slots.end(), [&] { return number(random); });
    const Ciphertexts pair = {engine.encrypt(slots, 0), engine.encrypt(slots, 0)};
    Ciphertexts refreshed;
    const auto refresh = [&] { refreshed = engine.bootstrap_many(pair); };
    const double first = seconds_of(refresh);  // encodes the diagonals, too
    const Ciphertexts single = {pair[0]};
    const double one = least(rounds, [&] { engine.bootstrap_many(single); });
    const double before = processor_seconds();
    const double again = least(rounds, refresh);
    const double cores = (processor_seconds() - before) / rounds;
    double error = 0.0;
    for (const Ciphertext& one : refreshed) {
        const Vector found = engine.decrypt(one);
        for (std::size_t at = 0; at < slots.size(); ++at) {
            error = std::max(error, std::fabs(found[at] - slots[at]));
        }
    }
    const Ciphertext x = refreshed[0];
    Vector fresh = slots;  // another each time: the engine keeps plaintexts that it has seen
    const auto with_vector = [&] {
        std::rotate(fresh.begin(), fresh.begin() + 1, fresh.end());
        engine.settle(engine.mul_plain(x, fresh));
    };
    const ckks::Words limbs = ring.polynomial(ring.size_q());
    std::fill(limbs.get(), limbs.get() + limbs.size(), 1);
    const double transforms =
        least(rounds, [&] { ring.forward(limbs.get(), ring.size_q()); });
    std::cout << "{\"log_qp\": " << ring.chain().log_qp() << ", \"level\": " << engine.level(x)
              << ", \"keys\": " << keys << ", \"first\": " << first << ", \"bootstrap\": " << again
              << ", \"cores\": " << cores << ", \"one\": " << one
              << ", \"log2_error\": " << std::log2(error)
              << ", \"mul\": " << least(rounds, [&] { engine.settle(engine.mul(x, refreshed[1])); })
              << ", \"rotate\": " << least(rounds, [&] { engine.rotate(x, 1); })
              << ", \"mul_plain\": " << least(rounds, with_vector)
              << ", \"transform\": " << transforms / static_cast<double>(ring.size_q()) << "}\n";
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::cerr << "bootstrap LOG_DEGREE SET ROUNDS\n";
        return 2;
    }
    try {
        return run(std::stoi(argv[1]), argv[2], std::stoi(argv[3]));
    } catch (const Error& error) {
        std::cerr << "error: " << error.what() << ": " << error.why << '\n';
        return 2;
    }
}
