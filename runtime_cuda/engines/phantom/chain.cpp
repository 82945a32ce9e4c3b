#include "chain.hpp"

#include <host/modulus.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <string>

#include "atlasc/error.hpp"
#include "bootstrap/parameters.hpp"

namespace atlasc::on_phantom {
namespace {

/// Ring degree -> largest log2(QP) with 128 bits: the table of atlasc/targets/security.py.
const std::map<std::size_t, int> max_log_qp = {
    {std::size_t{1} << 10, 26},   {std::size_t{1} << 11, 53},   {std::size_t{1} << 12, 106},
    {std::size_t{1} << 13, 214},  {std::size_t{1} << 14, 430},  {std::size_t{1} << 15, 868},
    {std::size_t{1} << 16, 1747}, {std::size_t{1} << 17, 3523},
};

/// Phantom's transforms are made for these.
constexpr std::size_t least_degree = std::size_t{1} << 11;
constexpr std::size_t largest_degree = std::size_t{1} << 17;

double log2_of(const Prime& q) { return std::log2(static_cast<double>(q.value)); }

std::vector<Prime> primes_of(std::size_t degree, const std::vector<int>& bits) {
    std::vector<Prime> primes;
    try {
        for (const ::phantom::arith::Modulus& q :
             ::phantom::arith::CoeffModulus::Create(degree, bits)) {
            primes.push_back({q.value(), q.const_ratio()[0], q.const_ratio()[1]});
        }
    } catch (const std::exception& error) {
        throw Error("Phantom has no primes of these sizes", error.what());
    }
    return primes;
}

/// Scales of levels `first` to `last` from the one below them.
void extend(Chain& chain, std::size_t first, std::size_t last) {
    for (std::size_t level = first; level <= last; ++level) {
        const auto q = static_cast<double>(chain.q[level].value);
        chain.scales[level] = std::sqrt(chain.scales[level - 1] * q);
    }
}

void set_bootstrap_scales(Chain& chain, const bootstrapping::Parameters& set) {
    const bootstrapping::Budget budget = bootstrapping::budget(set);
    if (budget.prime_bits.size() != chain.q.size()) {
        throw Error("the primes of the program are not those of its bootstrap");
    }
    for (std::size_t level = 0; level < chain.scales.size(); ++level) {
        chain.scales[level] = std::exp2(budget.log_scales[level]);
    }
    const auto base = static_cast<double>(chain.q[0].value);
    const auto program = static_cast<std::size_t>(set.levels_left);
    const auto reduced = program + static_cast<std::size_t>(set.stc_stages);
    chain.scales[0] = base / set.ratio();
    extend(chain, 1, program);
    extend(chain, reduced + 1, reduced + static_cast<std::size_t>(budget.reduction.levels()));
    chain.scales.back() = base;  // a raised coefficient m + q0 I over q0 is I + e
}

}  // namespace

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
        throw Error("the program names no moduli", "it was not compiled for the Phantom engine",
                    "compile with --target phantom");
    }
    const Moduli& moduli = *parameters.moduli;
    Chain chain;
    chain.degree = 2 * parameters.slots;
    const bool power = (chain.degree & (chain.degree - 1)) == 0;
    if (!power || chain.degree < least_degree || chain.degree > largest_degree) {
        throw Error("Phantom has no ring of degree " + std::to_string(chain.degree),
                    "a power of two from 2^11 to 2^17 is possible");
    }
    if (moduli.special.empty() || moduli.special.size() > most_special ||
        moduli.primes.size() <= static_cast<std::size_t>(parameters.max_level)) {
        throw Error("the moduli of the program do not fit its levels",
                    "a level needs a prime, and key switching 1 to 8 special ones");
    }
    std::vector<int> bits = moduli.primes;
    bits.insert(bits.end(), moduli.special.begin(), moduli.special.end());
    chain.q = primes_of(chain.degree, bits);
    const auto count = static_cast<std::ptrdiff_t>(moduli.primes.size());
    chain.special.assign(chain.q.begin() + count, chain.q.end());
    chain.q.resize(moduli.primes.size());

    chain.scales.assign(chain.q.size(), std::exp2(moduli.scale));
    if (moduli.bootstrap.empty()) {
        extend(chain, 1, chain.q.size() - 1);
    } else {
        set_bootstrap_scales(chain, bootstrapping::named(moduli.bootstrap,
                                                         static_cast<long>(chain.degree)));
    }
    return chain;
}

void require_security(const Chain& chain) {
    const int limit = max_log_qp.at(chain.degree);
    if (chain.log_qp() > limit) {
        throw Error("the parameters have fewer than 128 bits of security",
                    "log2(QP) is " + std::to_string(chain.log_qp()) + " at ring degree " +
                        std::to_string(chain.degree) + ", which allows " + std::to_string(limit),
                    "compile the program for a larger ring or for fewer levels");
    }
}

Word inverse(Word a, const Prime& q) {
    Word result = 1;
    Word power = reduce(a, q);
    for (Word exponent = q.value - 2; exponent != 0; exponent >>= 1) {
        if (exponent & 1) {
            result = multiply(result, power, q);
        }
        power = multiply(power, power, q);
    }
    return result;
}

}  // namespace atlasc::on_phantom
