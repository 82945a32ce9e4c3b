#include "ckks/keys/rotated_sums.hpp"

#include <algorithm>
#include <utility>

#include "ckks/ring/rotated_products.hpp"
#include "kernel.hpp"

namespace atlasc::ckks {
namespace {

InnerProduct rotated(const Ring& ring, const Baby& baby, std::size_t limbs, Word* out) {
    const bool turns = baby.key != nullptr;
    const Addends addends = times_special(ring, baby.x->part(0),
                                          turns ? nullptr : baby.x->part(1), limbs);
    return {ring.log_degree(), limbs, ring.size_q(), ring.size_p(),
            turns ? baby.digits->count : 0, ring.primes(),
            turns ? baby.digits->words.get() : nullptr,
            turns ? baby.key->packing : Packing(ring, limbs, ring.size_p()),
            turns ? baby.key->words.get() : nullptr, addends, baby.galois,
            inverse_galois(ring, baby.galois), false, out};
}

bool is_fused(const Ring& ring, const std::vector<std::vector<PlainValues>>& rows) {
    const auto fuses = [](const Prime& q) { return fuses_rotations(q.value); };
    const auto repeats = [](const PlainValues& plain) {
        return plain.words == nullptr || plain.log_run >= least_log_run;
    };
    const Chain& chain = ring.chain();
    return std::all_of(chain.q.begin(), chain.q.end(), fuses) &&
           std::all_of(chain.special.begin(), chain.special.end(), fuses) &&
           std::all_of(rows.begin(), rows.end(), [&](const std::vector<PlainValues>& row) {
               return std::all_of(row.begin(), row.end(), repeats);
           });
}

/// Sums of products with plaintexts, or with null the sum of the babies.
void sum_up(const Ring& ring, const std::vector<Baby>& babies, const PlainValues* plains,
            const std::vector<Word*>& out, std::size_t limbs) {
    std::vector<InnerProduct> products;
    for (const Baby& baby : babies) {
        products.push_back(rotated(ring, baby, limbs, nullptr));
    }
    const auto of_products = uploaded(ring.memory(), products);
    const auto of_out = uploaded(ring.memory(), out);
    const RotatedProducts kernel{ring.log_degree(), limbs, ring.size_q(), ring.size_p(),
                                 ring.primes(), of_products.get(), babies.size(), plains,
                                 out.size(), of_out.get()};
    launch(kernel.calls(), kernel, "products of rotated ciphertexts");
}

}  // namespace

std::vector<Extended> rotated_sums(const Ring& ring, const std::vector<Baby>& babies,
                                   const std::vector<std::vector<PlainValues>>& rows,
                                   std::size_t limbs) {
    std::vector<Extended> sums;
    for (std::size_t row = 0; row < rows.size(); ++row) {
        sums.emplace_back(ring, limbs);
    }
    if (is_fused(ring, rows)) {
        std::vector<PlainValues> plains;
        std::vector<Word*> out;
        for (std::size_t row = 0; row < rows.size(); ++row) {
            plains.insert(plains.end(), rows[row].begin(), rows[row].end());
            out.push_back(sums[row].words.get());
        }
        sum_up(ring, babies, uploaded(ring.memory(), plains).get(), out, limbs);
        return sums;
    }
    std::vector<Extended> turned;
    for (const Baby& baby : babies) {
        const InnerProduct kernel =
            rotated(ring, baby, limbs, turned.emplace_back(ring, limbs).words.get());
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

Extended rotated_sum(const Ring& ring, const std::vector<Baby>& babies, std::size_t limbs) {
    Extended sum(ring, limbs);
    if (is_fused(ring, {})) {
        sum_up(ring, babies, nullptr, {sum.words.get()}, limbs);
        return sum;
    }
    for (const Baby& baby : babies) {
        InnerProduct kernel = rotated(ring, baby, limbs, sum.words.get());
        kernel.accumulate = &baby != &babies.front();
        launch((limbs + ring.size_p()) * ring.degree(), kernel, "products with a key");
    }
    return sum;
}

}  // namespace atlasc::ckks
