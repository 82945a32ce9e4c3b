// Milliseconds and errors of bootstraps and primitives on any engine, as lines of JSON.
//
//     speeds bootstraps FILE ROUNDS      FILE: of atlasc/emit/parameter_set.py, with --copies 1 32
//     speeds primitives FILE ROUNDS
//
// A time is the least of some rounds. 128 bits are not asked for: small rings are for trials.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iostream>
#include <random>
#include <string>

#include "ckks/ckks_engine.hpp"
#include "ckks/keys/key_files.hpp"
#include "programs.hpp"

namespace {

using namespace atlasc;
using Clock = std::chrono::steady_clock;
using Expected = std::function<double(std::size_t slot)>;

class Speeds {
public:
    Speeds(const conformance::Bootstrapped& set, int rounds) : set_(set), rounds_(rounds) {
        Interface interface = set.interface;
        for (std::size_t amount = 1; amount <= hoisted; ++amount) {
            int& level = interface.keys.rotations[amount];
            level = std::max(level, interface.parameters.max_level);
        }
        auto ground = std::make_unique<ckks::Ground>(ckks::chain_of(interface.parameters), 0);
        ground_ = ground.get();
        const auto start = Clock::now();
        ckks::Role role = ckks::fresh_role(interface, *ground);
        engine_ = std::make_unique<ckks::CkksEngine>(std::move(ground), std::move(role));
        engine_->bootstrap_by(set.record);
        engine_->wait();
        print("keys", milliseconds(start), "");
    }

    void bootstraps() {
        bootstrap("bootstrap_one", 1, 1);
        bootstrap("bootstrap_two", 2, 1);
        bootstrap("bootstrap_narrow_one", 1, conformance::copies);
        bootstrap("bootstrap_narrow_two", 2, conformance::copies);
    }

    void primitives() {
        transforms();
        const int top = set_.interface.parameters.max_level;
        const std::size_t slots = engine_->slots();
        const Vector a = random(slots);
        const Vector b = random(slots);
        const Ciphertext x = engine_->encrypt(a, top);
        const Ciphertext y = engine_->encrypt(b, top);
        one("sum", [&] { return engine_->add(x, y); }, [&](auto at) { return a[at] + b[at]; });
        one("product", [&] { return engine_->mul(x, y); }, [&](auto at) { return a[at] * b[at]; });
        const Plaintext plain = b;
        one("plain_product", [&] { return engine_->mul_plain(x, plain); },
            [&](auto at) { return a[at] * b[at]; });
        one("rotation", [&] { return engine_->rotate(x, 1); },
            [&](auto at) { return a[(at + 1) % slots]; });
        std::vector<std::size_t> amounts;
        for (std::size_t amount = 1; amount <= hoisted; ++amount) {
            amounts.push_back(amount);
        }
        one("eight_rotations", [&] { return engine_->rotate_many(x, amounts).back(); },
            [&](auto at) { return a[(at + hoisted) % slots]; });
    }

private:
    static constexpr std::size_t hoisted = 8;
    static constexpr int calls = 20;  ///< of a primitive in a round

    static double milliseconds(Clock::time_point start) {
        return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    }

    static void print(const std::string& name, double taken, const std::string& more) {
        std::cout << "{\"name\": \"" << name << "\", \"milliseconds\": " << taken << more << "}"
                  << std::endl;
    }

    Vector random(std::size_t period) {
        std::uniform_real_distribution<double> number(-1.0, 1.0);
        Vector slots(period);
        std::generate(slots.begin(), slots.end(), [&] { return number(random_); });
        slots.resize(engine_->slots());
        return conformance::repeated(slots, period);
    }

    /// Of one of some calls; `call` does not wait for the device.
    double least(int repetitions, const std::function<void()>& call) {
        call();  // plaintexts are encoded, memory is taken
        engine_->wait();
        double found = INFINITY;
        for (int round = 0; round < rounds_; ++round) {
            const auto start = Clock::now();
            for (int at = 0; at < repetitions; ++at) {
                call();
            }
            engine_->wait();
            found = std::min(found, milliseconds(start) / repetitions);
        }
        return found;
    }

    double error(const Ciphertext& found, const Expected& expected) {
        const ComplexVector slots = engine_->decrypt_complex(found);
        double worst = 0.0;
        for (std::size_t slot = 0; slot < slots.size(); ++slot) {
            const double apart = std::abs(slots[slot] - expected(slot));
            worst = std::isnan(apart) ? INFINITY : std::max(worst, apart);
        }
        return worst;
    }

    /// JSON has no infinity: an error of 2^1000 is wrong as well.
    static std::string said(double error) {
        return ", \"log2_error\": " + std::to_string(std::clamp(std::log2(error), -99.0, 1000.0));
    }

    void bootstrap(const std::string& name, std::size_t count, std::size_t copies) {
        const std::size_t period = engine_->slots() / copies;
        std::vector<Vector> vectors;
        Ciphertexts xs;
        for (std::size_t at = 0; at < count; ++at) {
            vectors.push_back(random(period));
            xs.push_back(engine_->encrypt(vectors.back(), 3));
        }
        Ciphertexts found;
        const double taken = least(1, [&] {
            found = engine_->bootstrap_many(xs, period, set_.interface.parameters.max_level);
            engine_->settle({found.back()});
        });
        double worst = 0.0;
        for (std::size_t at = 0; at < count; ++at) {
            if (engine_->level(found[at]) != set_.interface.parameters.max_level) {
                throw Error(name + " ends at level " + std::to_string(engine_->level(found[at])));
            }
            worst = std::max(worst, error(found[at], [&](auto slot) { return vectors[at][slot]; }));
        }
        print(name, taken, said(worst));
    }

    void one(const std::string& name, const std::function<Ciphertext()>& call,
             const Expected& expected) {
        Ciphertext found;
        const double taken = least(calls, [&] {
            found = call();
            engine_->settle({found});
        });
        print(name, taken, said(error(found, expected)));
    }

    /// Of a limb: all primes of Q, of as many polynomials as the device takes at once.
    void transforms() {
        const ckks::Ring& ring = ground_->ring;
        const std::size_t limbs = ring.size_q();
        const std::size_t count = std::min<std::size_t>(ckks::together(), ckks::Limbs::most);
        std::vector<ckks::Word> numbers(count * limbs * ring.degree());
        std::generate(numbers.begin(), numbers.end(), [&] { return random_() >> 40; });  // below each prime
        const ckks::Words words = ckks::uploaded(*ground_->memory, numbers);
        ckks::Limbs all{limbs};
        for (std::size_t at = 0; at < count; ++at) {
            ckks::Word* const polynomial = words.get() + at * limbs * ring.degree();
            all.add(polynomial, polynomial);
        }
        const double each = 1.0 / static_cast<double>(count * limbs);
        // As many backwards as forwards.
        const double forward = least(calls, [&] { ring.forward(all); });
        const double backward = least(calls, [&] { ring.backward(all); });
        std::vector<ckks::Word> back(numbers.size());
        ckks::download(back.data(), words.get(), words.bytes());
        if (back != numbers) {
            throw Error("transforms forwards and backwards change a polynomial");
        }
        print("forward_transform", forward * each, "");
        print("backward_transform", backward * each, "");
    }

    const conformance::Bootstrapped& set_;
    int rounds_;
    ckks::Ground* ground_ = nullptr;  ///< the engine's
    std::unique_ptr<ckks::CkksEngine> engine_;
    std::mt19937_64 random_{5};
};

int run(const std::vector<std::string>& arguments) {
    const std::string kind = arguments.empty() ? "" : arguments[0];
    if (arguments.size() != 3 || (kind != "bootstraps" && kind != "primitives")) {
        throw Error("speeds bootstraps FILE ROUNDS, or speeds primitives FILE ROUNDS");
    }
    const conformance::Bootstrapped set = conformance::bootstrapped(arguments[1]);
    Speeds speeds(set, std::stoi(arguments[2]));
    kind == "bootstraps" ? speeds.bootstraps() : speeds.primitives();
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run({argv + 1, argv + argc});
    } catch (const Error& error) {
        std::cerr << "error: " << error.what() << ": " << error.why << '\n';
        return 2;
    }
}
