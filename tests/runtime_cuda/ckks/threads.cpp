// One engine, used by several threads at once: each computes on ciphertexts of its own and on one
// that all share. Prints the greatest error of each.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <thread>

#include "ckks/keys/key_files.hpp"
#include "ckks/shared_engine.hpp"
#include "tests/runtime_cuda/conformance/programs.hpp"

namespace {

using namespace atlasc;

/// The sum over some rounds of (x + y) rotate(x, 1), in the order of the thread's own.
double largest_error(ckks::SharedEngine& shared, const Ciphertext& x, const Vector& slots,
                     double own) {
    const auto primitive = [&shared](auto operation) { return shared.with(operation); };
    const std::size_t size = slots.size();
    const Ciphertext y = primitive([&](Engine& engine) {
        return engine.encrypt(Vector(size, own), 2);
    });
    double error = 0.0;
    for (int round = 0; round < 3; ++round) {
        const Ciphertext sum = primitive([&](Engine& engine) { return engine.add(x, y); });
        const Ciphertext turned = primitive([&](Engine& engine) { return engine.rotate(x, 1); });
        const Ciphertext product =
            primitive([&](Engine& engine) { return engine.mul(sum, turned); });
        const Vector found =
            primitive([&](Engine& engine) { return engine.decrypt(product); });
        for (std::size_t slot = 0; slot < size; ++slot) {
            const double expected = (slots[slot] + own) * slots[(slot + 1) % size];
            error = std::max(error, std::fabs(found[slot] - expected));
        }
    }
    return error;
}

}  // namespace

int main() {
    const Interface interface = conformance::leveled(13, 2, 1);
    auto ground = std::make_unique<ckks::Ground>(ckks::chain_of(interface.parameters), 0);
    ckks::Role role = ckks::fresh_role(interface, *ground);
    ckks::SharedEngine shared(
        std::make_unique<ckks::CkksEngine>(std::move(ground), std::move(role)));
    Vector slots(shared.with([](Engine& engine) { return engine.slots(); }));
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
        slots[slot] = std::sin(static_cast<double>(slot));
    }
    const Ciphertext x = shared.with([&](Engine& engine) {
        // A product, which the threads relinearise and rescale when they need it.
        return engine.mul_plain(engine.encrypt(slots, 2), 1.0);
    });
    constexpr std::size_t count = 4;
    std::vector<double> errors(count);
    std::vector<std::thread> threads;
    for (std::size_t at = 0; at < count; ++at) {
        threads.emplace_back([&, at] {
            errors[at] = largest_error(shared, x, slots, 0.25 * static_cast<double>(at));
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    for (const double error : errors) {
        std::cout << error << '\n';
    }
    return 0;
}
