// Parameter sets of others:
//   limits               the numbers of limits.hpp, by name
//   digits               a key of 65 digits, beside another: "equal masks", "equal errors" and "a
//                        secret" where there are any, nothing where all is right
//   sets SEED COUNT      sets that are random or were changed, refused or taken; of those that are
//                        taken and small enough a key is made, and used
//   kernels              what the check of the build says
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "atlasc/base/error.hpp"
#include "ckks/ckks_engine.hpp"
#include "ckks/keys/derived_keys.hpp"
#include "ckks/keys/key_files.hpp"
#include "ckks/keys/key_maker.hpp"
#include "tests/runtime_cuda/conformance/programs.hpp"

namespace {

using namespace atlasc;
using namespace atlasc::ckks;

constexpr std::size_t degree = std::size_t{1} << least_log_degree;

Parameters parameters_of(std::vector<int> primes, std::vector<int> special) {
    Parameters parameters = conformance::leveled(least_log_degree, 1, 1).parameters;
    parameters.max_level = static_cast<int>(primes.size()) - 1;
    parameters.moduli->primes = std::move(primes);
    parameters.moduli->special = std::move(special);
    parameters.moduli->scale = 30;
    return parameters;
}

/// One more prime than a set may have, and so 65 digits: a chain that `chain_of` does not make.
Chain chain_beyond_the_limit() {
    const Chain lower = chain_of(parameters_of(std::vector<int>(40, 30), {32}));
    const Chain upper = chain_of(parameters_of(std::vector<int>(25, 31), {32}));
    Chain chain = lower;
    chain.q.insert(chain.q.end(), upper.q.begin(), upper.q.end());
    chain.limbs.clear();
    chain.digits = {0};
    for (std::size_t at = 1; at <= chain.q.size(); ++at) {
        chain.limbs.push_back(at);
        chain.digits.push_back(at);
    }
    chain.scales.assign(chain.q.size(), 0x1p30);
    return chain;
}

/// A limb of a packed polynomial.
std::vector<Word> limb_of(const SwitchKey& key, std::size_t digit, bool mask, std::size_t limb) {
    const Packing& packing = key.packing;
    const Word* words = key.words.get() + (2 * digit + (mask ? 1 : 0)) * packing.words();
    std::vector<Word> residues(degree);
    for (std::size_t at = 0; at < degree; ++at) {
        residues[at] = unpacked(words + packing.start(limb), packing.bits(limb), at);
    }
    return residues;
}

/// Centred coefficients of values modulo a prime of Q.
std::vector<std::int64_t> coefficients(const Ring& ring, std::vector<Word> values,
                                       std::size_t prime) {
    ring.backward(values.data(), values.data(), 1, prime);
    const Word q = ring.chain().q[prime].value;
    std::vector<std::int64_t> centred;
    for (const Word value : values) {
        centred.push_back(value > q / 2 ? -static_cast<std::int64_t>(q - value)
                                        : static_cast<std::int64_t>(value));
    }
    return centred;
}

template <typename Polynomial>
void all_differ(std::vector<Polynomial> polynomials, const char* what) {
    std::sort(polynomials.begin(), polynomials.end());
    if (std::adjacent_find(polynomials.begin(), polynomials.end()) != polynomials.end()) {
        std::cout << "equal " << what << '\n';
    }
}

void digits() {
    const Ground ground(chain_beyond_the_limit(), 0);
    const Ring& ring = ground.ring;
    const Coefficients secret = uniform_secret(degree);
    const Words values = transformed_secret(ring, secret);
    const KeyMaker maker(ring, secret, fresh_seed());
    const int top = ring.chain().top();
    KeyNeeds needs;
    needs.relinearisation = top;
    needs.rotations = {{degree / 2, top}};  // all around: from the secret to itself
    std::vector<SwitchKey> keys;
    std::vector<std::vector<Word>> masks;
    std::vector<std::vector<std::int64_t>> errors;
    for (const KeyEntry& entry : entries_of(needs, ring.chain())) {
        keys.push_back(maker.make(entry));
        for (std::size_t digit = 0; digit < entry.digits; ++digit) {
            masks.push_back(limb_of(keys.back(), digit, true, entry.limbs));  // modulo P
            // b + a s = e modulo the primes of other digits.
            const std::size_t limb = digit == 0 ? 1 : 0;
            std::vector<Word> error = limb_of(keys.back(), digit, false, limb);
            const std::vector<Word> a = limb_of(keys.back(), digit, true, limb);
            const Prime& q = ring.chain().q[limb];
            for (std::size_t at = 0; at < degree; ++at) {
                const Word s = values.get()[limb * degree + at];
                error[at] = add(error[at], multiply(a[at], s, q), q);
            }
            errors.push_back(coefficients(ring, error, limb));
        }
    }
    if (masks.size() != 2 * ring.size_q() || ring.size_q() != most_primes + 1) {
        throw Error("these are not two keys of 65 digits");
    }
    all_differ(masks, "masks");
    all_differ(errors, "errors");
    // Digits with the same mask and error, under the same secret, differ by P times a secret.
    for (std::size_t one = 0; one < ring.size_q(); ++one) {
        for (std::size_t other = 0; other < ring.size_q(); ++other) {
            const Prime& q = ring.chain().q[other];
            std::vector<Word> difference = limb_of(keys[1], other, false, other);
            const std::vector<Word> less = limb_of(keys[0], one, false, other);
            const Word inverted = inverse(ring.chain().special[0].value, q);
            for (std::size_t at = 0; at < degree; ++at) {
                difference[at] = multiply(subtract(difference[at], less[at], q), inverted, q);
            }
            const std::vector<std::int64_t> found = coefficients(ring, difference, other);
            if (std::all_of(found.begin(), found.end(),
                            [](std::int64_t x) { return x >= -1 && x <= 1; })) {
                std::cout << "a secret\n";
            }
        }
    }
}

/// Numbers of which some are possible and some are not.
class Sets {
public:
    Sets(std::uint64_t seed, std::uint64_t number) : numbers_{seed, number}, random_(numbers_) {}

    Parameters next() {
        Parameters parameters = some_set();
        for (std::uint64_t changes = below(3); changes > 0; --changes) {
            change(parameters);
        }
        return parameters;
    }

    std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

private:
    int any() {
        constexpr int ends[] = {-2147483647 - 1, -1, 0, 1, 15, 16, 19, 20, 49, 50,
                                51, 60, 61, 63, 64, 65, 128, 960, 961, 2147483647};
        return below(3) == 0 ? static_cast<int>(random_()) : ends[below(std::size(ends))];
    }

    std::vector<int> sizes(std::uint64_t most) {
        std::vector<int> found(1 + below(most));
        const int least = 18 + static_cast<int>(below(12));
        for (int& bits : found) {
            bits = least + static_cast<int>(below(62 - static_cast<std::uint64_t>(least)));
        }
        return found;
    }

    Parameters some_set() {
        Parameters parameters = parameters_of(sizes(below(4) == 0 ? 80 : 12), sizes(9));
        Moduli& moduli = *parameters.moduli;
        if (below(4) != 0) {
            const auto shift = static_cast<int>(below(9));
            parameters.slots = std::size_t{1} << (9 + shift);
        }
        if (below(3) == 0) {
            parameters.bootstrap_level = static_cast<int>(below(moduli.primes.size()));
            for (std::size_t level = 0; level < moduli.primes.size(); ++level) {
                moduli.log_scales.push_back(20.0 + static_cast<double>(below(30)));
            }
        }
        return parameters;
    }

    void change(Parameters& parameters) {
        Moduli& moduli = *parameters.moduli;
        const auto one_of = [&](std::vector<int>& list) {
            if (!list.empty()) {
                list[below(list.size())] = any();
            }
        };
        switch (below(9)) {
            case 0: parameters.slots = static_cast<std::size_t>(any()); break;
            case 1: parameters.max_level = any(); break;
            case 2: parameters.bootstrap_level = any(); break;
            case 3: moduli.scale = any(); break;
            case 4: one_of(moduli.primes); break;
            case 5: one_of(moduli.special); break;
            case 6: moduli.primes.resize(below(200), static_cast<int>(20 + below(40))); break;
            case 7: moduli.special.resize(below(20), static_cast<int>(20 + below(40))); break;
            default: {
                constexpr double ends[] = {0.0, -1.0, 1e300, -INFINITY, INFINITY, NAN, 65.0};
                if (!moduli.log_scales.empty()) {
                    moduli.log_scales[below(moduli.log_scales.size())] =
                        ends[below(std::size(ends))];
                }
                moduli.log_scales.resize(below(4) == 0 ? below(90) : moduli.log_scales.size(), 30.0);
            }
        }
    }

    std::seed_seq numbers_;
    std::mt19937_64 random_;
};

/// Keys to any level, or to none there is; an encryption, a product, a rotation, a decryption.
void use(const Parameters& parameters, const Chain& chain, Sets& random) {
    auto ground = std::make_unique<Ground>(chain, std::uint64_t{1} << 30);
    KeyNeeds needs;
    const auto level = [&] { return static_cast<int>(random.below(chain.limbs.size() + 3)) - 2; };
    needs.relinearisation = level();
    needs.conjugation = level();
    needs.raising = parameters.bootstraps();
    needs.rotations = {{1 + random.below(2 * parameters.slots), level()}};
    const Coefficients secret = uniform_secret(chain.degree);
    const KeyMaker maker(ground->ring, secret, fresh_seed());
    Role role{std::string(32, 'a'), SecretKey(ground->ring, secret),
              std::make_shared<EvaluationKeys>(maker.make(needs))};
    CkksEngine engine(std::move(ground), std::move(role));
    const Vector half(engine.slots(), 0.5);
    const Ciphertext x = engine.encrypt(half, chain.top());
    engine.decrypt(engine.load(engine.save(x)));
    engine.decrypt(engine.rotate(x, needs.rotations.begin()->first));
    engine.decrypt(engine.square(x));
}

void sets(std::uint64_t seed, std::uint64_t count) {
    std::uint64_t taken = 0;
    std::uint64_t used = 0;
    for (std::uint64_t number = 0; number < count; ++number) {
        Sets random(seed, number);
        const Parameters parameters = random.next();
        try {
            const Chain chain = chain_of(parameters);
            ++taken;
            if (chain.degree == degree && random.below(8) == 0) {
                ++used;
                use(parameters, chain, random);
            }
            require_security(chain);
        } catch (const Error& error) {
            if (std::string(error.what()).empty()) {
                throw;
            }
        }
    }
    std::cout << count << " sets, " << taken << " taken, " << used << " used\n";
}

int run(const std::vector<std::string>& words) {
    const std::string& command = words.at(0);
    if (command == "limits") {
        std::cout << "LEAST_LOG_DEGREE " << least_log_degree << "\nMOST_LOG_DEGREE "
                  << most_log_degree << "\nMOST_PRIMES " << most_primes << "\nMOST_SPECIAL "
                  << most_special << "\nMOST_IN_BLOCK " << most_in_block << "\nHOPS "
                  << most_hops << "\nMOST_TOGETHER " << most_together << '\n';
    } else if (command == "digits") {
        digits();
    } else if (command == "kernels") {
        const Ground ground(chain_of(parameters_of({50, 40, 30}, {50})), 0);
    } else {
        sets(std::stoull(words.at(1)), std::stoull(words.at(2)));
    }
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
