// Work that is recorded as a graph on CUDA's stand-in, and the same work without: a product, a linear
// transform and sums of products, at a ring that is too small to be secure. Prints a line for each check:
// what it is, whether every bit is the same, and how many graphs were launched for it.
//
//     repeated        all checks
//     repeated brief  the first one
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "atlasc/base/error.hpp"
#include "ckks/ckks_engine.hpp"
#include "ckks/keys/key_files.hpp"
#include "ckks/repeated.hpp"
#include "ckks/value.hpp"
#include "tests/runtime_cuda/conformance/programs.hpp"

namespace {

using namespace atlasc;
using ckks::Repeated;

/// Which launches it makes depends on the kind.
class Works {
public:
    Works()
        : interface_(conformance::leveled(11, 3, 1)),
          memory_(std::make_shared<ckks::Memory>(0)),
          ring_(*memory_, ckks::chain_of(interface_.parameters)),
          engine_(engine_on(interface_, memory_)),
          repeated_(std::make_unique<Repeated>(*memory_)) {
        for (std::size_t at = 0; at < 4; ++at) {
            identities_.push_back(new_identity());
        }
    }

    std::size_t slots() const { return engine_->slots(); }

    /// The operands, as products that wait for their divisions, or as they are.
    Ciphertexts operands(std::size_t count, bool product, double seed) {
        Ciphertexts xs;
        for (std::size_t at = 0; at < count; ++at) {
            const Ciphertext x = engine_->encrypt(numbers(seed + static_cast<double>(at)), 3);
            xs.push_back(product ? engine_->square(x) : x);
        }
        return xs;
    }

    Ciphertexts work(std::size_t kind, const Ciphertexts& xs) {
        Ciphertext x = engine_->mul(xs.front(), xs.back());
        for (std::size_t more = 0; more < kind; ++more) {
            x = engine_->add(x, engine_->rotate(x, 1));
        }
        std::vector<GiantStep> steps(2);
        for (std::size_t giant = 0; giant < 2; ++giant) {
            steps[giant] = {0, giant * 5, {}};
            for (std::size_t baby = 0; baby < 2; ++baby) {
                steps[giant].terms.emplace(BabyStep{0, baby}, diagonal(2 * giant + baby));
            }
        }
        Ciphertexts results = engine_->transform({x}, steps, false);
        results.push_back(engine_->dot_plain({xs.front(), xs.back()}, {0.5, -0.25}));
        engine_->settle(results);
        return results;
    }

    /// By graphs, and then without them: whether all is the same.
    bool same(std::size_t kind, const Ciphertexts& xs) {
        engine_->settle(xs);
        const Ciphertexts copies = as_they_are(xs);
        const auto found = words(repeated_->run(
            ring_, kind, xs, [&](const Ciphertexts& some) { return work(kind, some); }));
        return found == words(work(kind, copies));
    }

    /// Some times, with other operands each time.
    bool rounds(int times, std::size_t kind, std::size_t count, bool product) {
        bool found = true;
        for (int round = 0; round < times; ++round) {
            found = same(kind, operands(count, product, ++seed_)) && found;
        }
        return found;
    }

    /// Plaintexts that no cache has are encoded, which no graph can.
    bool encodes(const Ciphertexts& xs) {
        const auto sum = [&](const Ciphertexts& some) {
            return Ciphertexts{engine_->add_plain(some[0], Plaintext(numbers(3.0)))};
        };
        return words(repeated_->run(ring_, 99, xs, sum)) == words(sum(xs));
    }

    /// Something else takes all memory, so that the engine forgets what it encoded.
    void press() {
        try {
            const ckks::Array<char> others(*memory_, memory_->left() + 1);
        } catch (const Error&) {  // what graphs keep stays
        }
    }

private:
    static std::unique_ptr<ckks::CkksEngine> engine_on(const Interface& interface,
                                                       std::shared_ptr<ckks::Memory> memory) {
        auto ground = std::make_unique<ckks::Ground>(ckks::chain_of(interface.parameters),
                                                     std::move(memory));
        ckks::Role role = ckks::fresh_role(interface, *ground);
        return std::make_unique<ckks::CkksEngine>(std::move(ground), std::move(role));
    }

    Vector numbers(double seed) const {
        Vector slots(engine_->slots());
        for (std::size_t slot = 0; slot < slots.size(); ++slot) {
            slots[slot] = std::sin(seed * static_cast<double>(slot + 1));
        }
        return slots;
    }

    Plaintext diagonal(std::size_t number) const {
        return Deferred{identities_.at(number),
                        [this, number] { return numbers(0.5 + static_cast<double>(number)); }};
    }

    static Ciphertexts as_they_are(const Ciphertexts& xs) {
        Ciphertexts copies;
        for (const Ciphertext& x : xs) {
            const ckks::Value value = ckks::of(x);
            copies.push_back(ckks::held(value.polys, value.level, value.limbs, value.scale));
        }
        return copies;
    }

    static std::vector<std::vector<ckks::Word>> words(const Ciphertexts& xs) {
        std::vector<std::vector<ckks::Word>> found;
        for (const Ciphertext& x : xs) {
            const ckks::Value value = ckks::of(x);
            found.push_back(ckks::downloaded(value.polys->words.get(), value.polys->words.size()));
            found.back().push_back(static_cast<ckks::Word>(value.level));
        }
        return found;
    }

    Interface interface_;
    std::shared_ptr<ckks::Memory> memory_;
    ckks::Ring ring_;
    std::unique_ptr<ckks::CkksEngine> engine_;
    std::unique_ptr<Repeated> repeated_;
    std::vector<std::uint64_t> identities_;
    double seed_ = 0.0;
};

template <typename Check>
void tell(const char* name, const Check& check) {
    const std::size_t before = stand_in::graphs;
    const bool found = check();
    std::cout << name << ": " << (found ? "same" : "different") << ", "
              << stand_in::graphs - before << " graphs" << std::endl;
}

bool of_two_threads(Works& works) {
    std::atomic<bool> found[2] = {{true}, {true}};
    // Made before, so that both threads launch all the time.
    std::vector<Ciphertexts> operands;
    for (int at = 0; at < 6; ++at) {
        operands.push_back(works.operands(2, false, 100 + at));
    }
    const auto half = [&](std::size_t thread) {
        for (std::size_t at = thread; at < operands.size(); at += 2) {
            found[thread] = works.same(at / 2 % 2 + 1, operands[at]) && found[thread];
        }
    };
    std::thread other([&] { half(1); });
    half(0);
    other.join();
    return found[0] && found[1];
}

void run(bool brief) {
    Works works;
    tell("one", [&] { return works.rounds(3, 1, 1, false); });
    if (brief) {
        return;
    }
    tell("more room", [&] { return works.rounds(3, 2, 2, false); });
    tell("again", [&] { return works.rounds(2, 1, 1, false); });
    tell("products", [&] { return works.rounds(3, 0, 2, true); });
    tell("threads", [&] { return of_two_threads(works); });
    works.press();  // graphs keep their plaintexts
    tell("plaintexts forgotten", [&] { return works.rounds(1, 1, 1, false); });
    tell("encodes", [&] {
        bool found = true;
        for (int round = 0; round < 3; ++round) {
            found = works.encodes(works.operands(1, false, 7)) && found;
        }
        return found;
    });
    tell("off", [&] { return works.rounds(1, 1, 1, false); });
}

}  // namespace

int main(int count, char**) {
    try {
        run(count > 1);
        return 0;
    } catch (const Error& error) {
        std::cerr << "error: " << error.what() << ": " << error.why << '\n';
        return 2;
    }
}
