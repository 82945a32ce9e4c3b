#include "ckks/keys/rotated_sums.hpp"

#include <algorithm>

#include "ckks/ring/rotated_products.hpp"
#include "kernel.hpp"

namespace atlasc::ckks {
namespace {

/// Whether the values of all plaintexts have runs of 2^log_run or more.
bool have_runs(const std::vector<std::vector<PlainValues>>& rows, int log_run) {
    return std::all_of(rows.begin(), rows.end(), [&](const std::vector<PlainValues>& row) {
        return std::all_of(row.begin(), row.end(), [&](const PlainValues& plain) {
            return plain.words == nullptr || plain.log_run >= log_run;
        });
    });
}

/// Of the largest prime.
int prime_bits(const Chain& chain) {
    int bits = 0;
    for (const std::vector<Prime>* primes : {&chain.q, &chain.special}) {
        for (const Prime& q : *primes) {
            bits = std::max(bits, bits_of(q));
        }
    }
    return bits;
}

bool is_fused(const Ring& ring, const std::vector<std::vector<PlainValues>>& rows) {
    const auto fuses = [](const Prime& q) { return fuses_rotations(q.value); };
    const Chain& chain = ring.chain();
    return std::all_of(chain.q.begin(), chain.q.end(), fuses) &&
           std::all_of(chain.special.begin(), chain.special.end(), fuses) &&
           have_runs(rows, least_log_run());
}

}  // namespace

std::vector<Extended> rotated_sums(const Ring& ring, const std::vector<Switched>& babies,
                                   const std::vector<std::vector<PlainValues>>& rows,
                                   std::size_t limbs) {
    std::vector<Extended> sums;
    for (std::size_t row = 0; row < rows.size(); ++row) {
        sums.emplace_back(ring, limbs);
    }
    if (is_fused(ring, rows)) {
        std::vector<InnerProduct> products;
        std::vector<PlainValues> plains;
        std::vector<Word*> out;
        for (const Switched& baby : babies) {
            products.push_back(inner_product(ring, baby, limbs, nullptr));
        }
        for (std::size_t row = 0; row < rows.size(); ++row) {
            plains.insert(plains.end(), rows[row].begin(), rows[row].end());
            out.push_back(sums[row].words.get());
        }
        const Array of_products(ring.memory(), products);
        const Array of_plains(ring.memory(), plains);
        const Array of_out(ring.memory(), out);
        const RotatedProducts kernel{ring.log_degree(), limbs, ring.size_q(), ring.size_p(),
                                     ring.primes(), of_products.get(), babies.size(),
                                     of_plains.get(), rows.size(), of_out.get(),
                                     have_runs(rows, RotatedProducts::log_tile),
                                     prime_bits(ring.chain())};
        launch(kernel.calls(), kernel, "products of rotated ciphertexts");
        return sums;
    }
    std::vector<Extended> turned;
    for (const Switched& baby : babies) {
        const InnerProduct kernel =
            inner_product(ring, baby, limbs, turned.emplace_back(ring, limbs).words.get());
        launch((limbs + ring.size_p()) * ring.degree(), kernel, "products with a key");
    }
    for (std::size_t row = 0; row < rows.size(); ++row) {
        std::vector<PlainTerm> terms;
        for (std::size_t at = 0; at < babies.size(); ++at) {
            if (rows[row][at].words != nullptr) {
                terms.push_back({turned[at].words.get(), limbs + ring.size_p(), rows[row][at]});
            }
        }
        add_products(ring, terms, limbs, ring.size_p(), false, sums[row].words.get());
    }
    return sums;
}

}  // namespace atlasc::ckks
