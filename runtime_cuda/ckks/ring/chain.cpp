#include "ckks/ring/chain.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <string>

#include "atlasc/base/error.hpp"
#include "ckks/ring/transforms.hpp"

namespace atlasc::ckks {
namespace {

/// Ring degree -> largest log2(QP) with 128 bits: the table of atlasc/targets/security.py.
const std::map<std::size_t, int> max_log_qp = {
    {std::size_t{1} << 10, 26},   {std::size_t{1} << 11, 53},   {std::size_t{1} << 12, 106},
    {std::size_t{1} << 13, 214},  {std::size_t{1} << 14, 430},  {std::size_t{1} << 15, 868},
    {std::size_t{1} << 16, 1747}, {std::size_t{1} << 17, 3523},
};

/// Ring degree -> largest log2 of a modulus that has an estimate of 128 bits for the sparse secret:
/// atlasc/targets/estimates/lattice.json.
const std::map<std::size_t, int> max_log_q_of_sparse = {{std::size_t{1} << 16, 117}};

double log2_of(const Prime& q) { return std::log2(static_cast<double>(q.value)); }

Prime prime(Word value) {
    const Wide ratio = ~static_cast<Wide>(0) / value;  // 2^128 - 1: a prime is no power of two
    return {value, static_cast<Word>(ratio), static_cast<Word>(ratio >> 64)};
}

/// Miller and Rabin's test; these bases decide all numbers of 64 bits.
bool is_prime(const Prime& q) {
    for (const Word base : {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37}) {
        if (q.value % base == 0) {
            return q.value == base;
        }
        Word odd = q.value - 1;
        int twos = 0;
        for (; odd % 2 == 0; odd /= 2) {
            ++twos;
        }
        Word x = power(base, odd, q);
        bool witness = x != 1 && x != q.value - 1;
        for (int at = 1; witness && at < twos; ++at) {
            x = multiply(x, x, q);
            witness = x != q.value - 1;
        }
        if (witness) {
            return false;
        }
    }
    return true;
}

/// For each size in bits another prime that is 1 modulo 2N: the largest ones there are, in rising
/// order where a size occurs again.
std::vector<Prime> primes_of(std::size_t degree, const std::vector<int>& bits) {
    std::map<int, std::vector<Prime>> found;
    for (const int size : bits) {
        std::vector<Prime>& primes = found[size];
        const auto wanted = std::count(bits.begin(), bits.end(), size);
        for (Word q = primes.empty() ? (Word{1} << size) + 1 : primes.back().value;
             static_cast<std::ptrdiff_t>(primes.size()) < wanted;) {
            q -= 2 * degree;
            if (q >> (size - 1) == 0) {
                throw Error("there are too few primes of " + std::to_string(size) + " bits",
                            "for ring degree " + std::to_string(degree));
            }
            if (is_prime(prime(q))) {
                primes.push_back(prime(q));
            }
        }
    }
    std::vector<Prime> primes;
    for (const int size : bits) {
        primes.push_back(found[size].back());
        found[size].pop_back();
    }
    return primes;
}

/// Sizes of primes of at most `most` bits: as few as can have so many bits together.
std::vector<int> parts_of(int bits, int most) {
    const int count = (bits + most - 1) / most;
    std::vector<int> parts;
    for (int at = 0; at < count; ++at) {
        parts.push_back((bits + at) / count);
    }
    return parts;
}

void require(bool possible, const std::string& why) {
    if (!possible) {
        throw Error("the engine cannot have the parameters of the program", why,
                    "compile the model again, and do not use this program if it came from "
                    "somebody else");
    }
}

/// Refuses what limits.hpp does not allow, before anything is computed of the numbers.
void require_limits(const Parameters& parameters, const Moduli& moduli) {
    const auto within = [](const auto& number, const auto& least, const auto& most) {
        return number >= least && number <= most;  // false for what is no number
    };
    const std::size_t degree = 2 * parameters.slots;
    require((degree & (degree - 1)) == 0 &&
                within(parameters.slots, std::size_t{1} << (least_log_degree - 1),
                       std::size_t{1} << (most_log_degree - 1)),
            "there is no ring of degree " + std::to_string(degree) + "; a power of two from 2^" +
                std::to_string(least_log_degree) + " to 2^" + std::to_string(most_log_degree) +
                " is possible");
    const std::size_t levels = moduli.primes.size();
    require(within(levels, std::size_t{1}, most_primes),
            "it has " + std::to_string(levels) + " levels; 1 to " + std::to_string(most_primes) +
                " are possible");
    require(within(parameters.max_level, 0, static_cast<int>(levels) - 1) &&
                within(parameters.bootstrap_level.value_or(0), 0, parameters.max_level),
            "a level has no prime");
    require(within(moduli.special.size(), std::size_t{1}, most_special),
            "it has " + std::to_string(moduli.special.size()) +
                " special primes; 1 to " + std::to_string(most_special) + " are possible");
    // A level may have several primes; the lowest one has one.
    constexpr int most_bits = most_prime_bits * static_cast<int>(most_in_block);
    const auto sizes_within = [&](const std::vector<int>& sizes, int most) {
        return std::all_of(sizes.begin(), sizes.end(),
                           [&](int bits) { return within(bits, least_prime_bits, most); });
    };
    require(sizes_within(moduli.primes, most_bits) &&
                sizes_within({moduli.primes.front()}, most_prime_bits) &&
                sizes_within(moduli.special, most_prime_bits),
            "a prime has fewer than " + std::to_string(least_prime_bits) + " bits or more than " +
                std::to_string(most_prime_bits));
    require(moduli.log_scales.empty() || moduli.log_scales.size() == levels,
            "a level has no scale");
    require(within(moduli.scale, 1, most_prime_bits) &&
                std::all_of(moduli.log_scales.begin(), moduli.log_scales.end(),
                            [&](double log) { return within(log, 1.0, 1.0 * most_scale_bits); }),
            "a scale is not from 2 to 2^" + std::to_string(most_prime_bits) + ", or 2^" +
                std::to_string(most_scale_bits) + " in a bootstrap");
}

/// Scales by the primes that there are. Up to the linear transforms of a bootstrap a square keeps its
/// scale. To those above q0 keeps its ratio, since a raised ciphertext holds coefficients over one of
/// them.
void set_scales(Chain& chain, const Moduli& moduli) {
    std::vector<double> logs = moduli.log_scales;
    const bool bootstraps = !logs.empty();
    logs.resize(bootstraps ? logs.size() : chain.limbs.size(), moduli.scale);
    bool squares = true;
    for (std::size_t level = 0; level < logs.size(); ++level) {
        squares = squares && (level == 0 || 2 * logs[level] == logs[level - 1] + moduli.primes[level]);
        const double base = bootstraps ? static_cast<double>(chain.q[0].value) *
                                             std::exp2(-moduli.primes[0])
                                       : 1.0;
        chain.scales.push_back(squares && level > 0 ? std::sqrt(chain.scales[level - 1] *
                                                   chain.modulus(static_cast<int>(level)))
                                       : base * std::exp2(logs[level]));
    }
}

}  // namespace

std::size_t Chain::limbs_at(int level) const {
    if (level < 0 || level > top()) {
        throw Error("the parameters have no level " + std::to_string(level),
                    "their levels are 0 to " + std::to_string(top()));
    }
    return limbs[static_cast<std::size_t>(level)];
}

double Chain::modulus(int level) const {
    double product = 1.0;
    for (std::size_t at = level == 0 ? 0 : limbs_at(level - 1); at < limbs_at(level); ++at) {
        product *= static_cast<double>(q[at].value);
    }
    return product;
}

double Chain::log_q(std::size_t primes) const {
    double sum = 0.0;
    for (std::size_t at = 0; at < primes; ++at) {
        sum += log2_of(q[at]);
    }
    return sum;
}

double Chain::log_qp() const {
    double sum = log_q(q.size());
    for (const Prime& p : special) {
        sum += log2_of(p);
    }
    return sum;
}

Chain chain_of(const Parameters& parameters) {
    if (!parameters.moduli) {
        throw Error("the program names no moduli", "it was compiled for another engine",
                    "compile with --target phantom");
    }
    const Moduli& moduli = *parameters.moduli;
    require_limits(parameters, moduli);
    Chain chain;
    chain.degree = 2 * parameters.slots;
    chain.raises = parameters.bootstraps();
    chain.refreshed = parameters.bootstrap_level.value_or(-1);
    // The base is one prime, since its residues are read as integers when a modulus is raised. A
    // larger one than the device is fast for is mostly followed by others, which stay whole too.
    const int most =
        moduli.primes.front() <= fast_prime_bits() ? fast_prime_bits() : most_prime_bits;
    std::vector<int> bits;
    for (const int size : moduli.primes) {
        const std::vector<int> parts = parts_of(size, most);
        require(parts.size() + moduli.special.size() <= most_in_block,
                "a level of " + std::to_string(size) + " bits has " +
                    std::to_string(parts.size()) + " primes, beside " +
                    std::to_string(moduli.special.size()) + " special ones; " +
                    std::to_string(most_in_block) + " are possible");
        bits.insert(bits.end(), parts.begin(), parts.end());
        chain.limbs.push_back(bits.size());
    }
    require(bits.size() <= most_primes,
            "it has " + std::to_string(bits.size()) + " primes; " + std::to_string(most_primes) +
                " are possible");
    const int special = std::accumulate(moduli.special.begin(), moduli.special.end(), 0);
    require(special >= *std::max_element(bits.begin(), bits.end()),
            "the special primes are smaller than a prime of a level");
    chain.digits = groups_of(bits, special);
    bits.insert(bits.end(), moduli.special.begin(), moduli.special.end());
    chain.q = primes_of(chain.degree, bits);
    const auto count = static_cast<std::ptrdiff_t>(chain.limbs.back());
    chain.special.assign(chain.q.begin() + count, chain.q.end());
    chain.q.resize(chain.limbs.back());

    set_scales(chain, moduli);
    return chain;
}

Chain landed(Chain chain, int level) {
    const std::size_t first = chain.limbs_at(level);
    const std::size_t end = chain.limbs_at(chain.refreshed);
    const auto without = [&](std::size_t at) {
        return at <= first ? at : at < end ? first : at - (end - first);
    };
    std::vector<double> scales = chain.scales;
    for (int at = level + 1; at <= chain.top(); ++at) {
        // Where a square keeps its scale it does so from the other one below.
        const auto place = static_cast<std::size_t>(at);
        const double square = chain.scales[place - 1] * chain.modulus(at);
        const bool squares = std::fabs(chain.scales[place] * chain.scales[place] / square - 1.0) < 0x1p-30;
        if (at <= chain.refreshed) {
            scales[place] = scales[place - 1];
        } else if (squares) {
            scales[place] = std::sqrt(scales[place - 1] * chain.modulus(at));
        }
    }
    std::vector<std::size_t> digits;
    for (std::size_t digit = 0; digit < chain.digits.size(); ++digit) {
        const std::size_t start = without(chain.digits[digit]);
        if (digits.empty() || start != digits.back()) {
            digits.push_back(start);
        }
    }
    const auto whole = std::lower_bound(chain.digits.begin(), chain.digits.end(), first);
    chain.gap = {first, end - first, static_cast<std::size_t>(whole - chain.digits.begin()),
                 chain.digits.size() - digits.size()};
    chain.digits = std::move(digits);
    chain.scales = std::move(scales);
    chain.q.erase(chain.q.begin() + static_cast<std::ptrdiff_t>(first),
                  chain.q.begin() + static_cast<std::ptrdiff_t>(end));
    std::transform(chain.limbs.begin(), chain.limbs.end(), chain.limbs.begin(), without);
    return chain;
}

std::vector<std::size_t> groups_of(const std::vector<int>& bits, int most) {
    std::vector<std::size_t> starts = {0};
    int sum = 0;
    for (std::size_t at = 0; at < bits.size(); ++at) {
        if (sum + bits[at] > most || at - starts.back() == most_in_block) {
            starts.push_back(at);
            sum = 0;
        }
        sum += bits[at];
    }
    starts.push_back(bits.size());
    return starts;
}

std::size_t digits_of(const Chain& chain, std::size_t limbs) {
    const auto end = std::lower_bound(chain.digits.begin(), chain.digits.end(), limbs);
    return static_cast<std::size_t>(end - chain.digits.begin());
}

std::size_t special_for(const Chain& chain, std::size_t limbs) {
    if (digits_of(chain, limbs) > 1) {
        return chain.special.size();
    }
    int missing = digit_room;
    for (std::size_t at = 0; at < limbs; ++at) {
        missing += bits_of(chain.q[at]);
    }
    std::size_t count = 0;
    while (count < chain.special.size() && missing > 0) {
        missing -= bits_of(chain.special[count++]);
    }
    return count;
}

void require_security(const Chain& chain) {
    const auto refuse = [&](const std::string& secret, double log_q, int limit) {
        throw Error("the parameters have fewer than 128 bits of security",
                    "log2(QP) of " + secret + " is " + std::to_string(log_q) +
                        " at ring degree " + std::to_string(chain.degree) + ", which allows " +
                        std::to_string(limit),
                    "compile the program for a larger ring or for fewer levels");
    };
    const int limit = max_log_qp.at(chain.degree);
    if (chain.log_qp() > limit) {
        refuse("the secret key", chain.log_qp(), limit);
    }
    if (chain.raises) {
        const auto found = max_log_q_of_sparse.find(chain.degree);
        const int most = found == max_log_q_of_sparse.end() ? 0 : found->second;
        const double log_q = log2_of(chain.q[0]) + log2_of(chain.special[0]);
        if (log_q > most) {
            refuse("the sparse secret of a bootstrap", log_q, most);
        }
    }
}

bool is_reduced(const Chain& chain, std::size_t limbs, const std::uint8_t* words,
                std::size_t parts) {
    for (std::size_t row = 0; row < parts * limbs; ++row) {
        const Word q = chain.q[row % limbs].value;
        for (std::size_t at = 0; at < chain.degree; ++at, words += sizeof(Word)) {
            Word residue = 0;
            std::memcpy(&residue, words, sizeof residue);
            if (residue >= q) {
                return false;
            }
        }
    }
    return true;
}

int bits_of(const Prime& q) {
    int bits = 0;
    while (q.value >> bits != 0) {
        ++bits;
    }
    return bits;
}

Word inverse(Word a, const Prime& q) { return power(reduce(a, q), q.value - 2, q); }

Word root_of(const Prime& q, std::size_t degree) {
    for (Word generator = 2;; ++generator) {
        const Word root = power(generator, (q.value - 1) / (2 * degree), q);
        if (power(root, degree, q) == q.value - 1) {
            return root;
        }
    }
}

}  // namespace atlasc::ckks
