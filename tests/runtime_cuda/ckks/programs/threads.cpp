// One engine, used by several threads at once: each computes on ciphertexts of its own and on one
// that all share, with plaintexts that all share. Prints the greatest error of each.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <thread>

#include "atlasc/backend.hpp"
#include "tests/runtime_cuda/conformance/programs.hpp"

namespace {

using namespace atlasc;

/// A factor that the engine keeps once it was used.
Plaintext kept(double number, std::size_t slots) {
    static const std::uint64_t identity = new_identity();
    return Deferred{identity, [number, slots] { return Vector(slots, number); }};
}

/// Some rounds of 0.5 (x + y) rotate(x, 1), which travels as bytes; x is shared, y the thread's own.
double largest_error(Engine& engine, const Ciphertext& x, const Vector& slots, double own) {
    const std::size_t size = slots.size();
    const Ciphertext y = engine.encrypt(Vector(size, own), 2);
    double error = 0.0;
    for (int round = 0; round < 4; ++round) {
        const Ciphertext sum = engine.add(x, y);
        const Ciphertext turned = engine.rotate_many(x, {0, 1})[1];
        const Ciphertext half = engine.dot_plain({sum}, {kept(0.5, size)});
        const Ciphertext product = engine.load(engine.save(engine.mul(half, turned)));
        const Vector found = engine.decrypt(product);
        for (std::size_t slot = 0; slot < size; ++slot) {
            const double expected = 0.5 * (slots[slot] + own) * slots[(slot + 1) % size];
            error = std::max(error, std::fabs(found[slot] - expected));
        }
    }
    return error;
}

/// Prints the greatest error of each of some threads.
void run(const Backend& backend, const Interface& interface) {
    const std::unique_ptr<Engine> engine = backend.fresh_engine(interface, {});
    Vector slots(engine->slots());
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
        slots[slot] = std::sin(static_cast<double>(slot));
    }
    // A product, which the threads relinearise and rescale when they need it.
    const Ciphertext x = engine->square(engine->encrypt(Vector(slots.size(), 1.0), 4));
    const Ciphertext shared = engine->mul_plain(x, slots);
    constexpr std::size_t count = 8;
    std::vector<double> errors(count);
    std::vector<std::thread> threads;
    for (std::size_t at = 0; at < count; ++at) {
        threads.emplace_back([&, at] {
            errors[at] = largest_error(*engine, shared, slots, 0.125 * static_cast<double>(at));
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    for (const double error : errors) {
        std::cout << error << '\n';
    }
}

}  // namespace

int main() {
    const Interface interface = conformance::leveled(14, 4, 2);
    run(ckks_backend, interface);
    setenv("ATLASC_SIM_NOISE", "1", 1);
    run(sim_backend, interface);
    return 0;
}
