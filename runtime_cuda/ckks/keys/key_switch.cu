#include "ckks/keys/key_switch.hpp"

#include <algorithm>
#include <utility>

#include "atlasc/base/error.hpp"
#include "kernel.hpp"

namespace atlasc::ckks {
namespace {

/// As many digits as the device works on together.
void make(const Ring& ring, const std::vector<Digit>& digits, std::size_t limbs, bool once) {
    Limbs values{limbs + ring.size_p(), 0, limbs};
    values.converts = begins_conversions();
    std::size_t most = 0;
    for (const Digit& digit : digits) {
        const BlockConstants& block = digit.block;
        most = std::max(most, block.size);
        values.blocks[values.polynomials] = block;
        values.add(digit.out,
                   values.converts ? digit.coefficients + block.first * ring.degree() : digit.out,
                   block.first, block.first + block.size);
    }
    if (!values.converts) {
        with_size(most, [&](auto constant) {
            Decompose<decltype(constant)::value> kernel{
                ring.log_degree(), limbs,         ring.size_q(), ring.size_p(),
                ring.size_qp(),    ring.primes(), {}};
            std::copy(digits.begin(), digits.end(), kernel.of);
            launch(digits.size() * ring.degree(), kernel, "digits of a key switch");
        });
    }
    once ? ring.begin_forward(values) : ring.forward(values);
}

}  // namespace

Digits decomposed(const Ring& ring, const std::vector<const Word*>& polynomials,
                  std::size_t limbs, bool once) {
    const std::size_t count = polynomials.size();
    const std::size_t each = ring.digits(limbs);
    const std::size_t size = (limbs + ring.size_p()) * ring.degree();
    Digits digits{limbs, each, each * size, Words(ring.memory(), count * each * size)};
    digits.begun = once;
    if (begins_conversions()) {
        digits.own = polynomials;
    }
    const Words coefficients = ring.polynomial(count * limbs);
    std::vector<Digit> some;
    for (std::size_t first = 0; first < count; first += together()) {
        Limbs values{limbs};
        for (std::size_t at = first; at < std::min(first + together(), count); ++at) {
            const std::size_t start = at * limbs * ring.degree();
            values.add(coefficients.get() + start, polynomials[at]);
        }
        values.scales = begins_conversions() ? ring.digit_inverses(limbs) : nullptr;
        ring.backward(values);
        for (std::size_t at = first; at < first + values.polynomials; ++at) {
            const std::size_t start = at * limbs * ring.degree();
            for (std::size_t digit = 0; digit < each; ++digit) {
                some.push_back({ring.digit(digit, limbs), coefficients.get() + start,
                                polynomials[at],
                                digits.words.get() + (at * each + digit) * size});
                if (some.size() == together()) {
                    make(ring, some, limbs, once);
                    some.clear();
                }
            }
        }
    }
    if (!some.empty()) {
        make(ring, some, limbs, once);
    }
    return digits;
}

Addends times_special(const Ring& ring, const Word* first, const Word* second,
                      std::size_t limbs) {
    return {first, second, limbs, ring.special_products()};
}

bool reaches(const Ring& ring, const SwitchKey* key, std::size_t limbs) {
    return key != nullptr && key->packing.limbs > ring.chain().gap.key_limb(limbs - 1);
}

InnerProduct inner_product(const Ring& ring, const Switched& x, std::size_t limbs, Word* out) {
    const bool turns = x.key != nullptr;
    Chain::Gap gap = turns ? ring.chain().gap : Chain::Gap();
    if (!x.digits.of_primes) {
        gap.digits = 0;
    }
    return {ring.log_degree(), limbs, ring.size_q(), ring.size_p(),
            x.digits.count, ring.primes(), x.digits.words,
            turns ? x.key->packing : Packing(ring.chain(), limbs, ring.size_p()), gap,
            turns ? x.key->words.get() : nullptr, x.addends, x.galois,
            inverse_galois(ring, x.galois), false, out, x.digits.log_run, x.digits.own,
            ring.digit_numbers()};
}

void add_switched(const Ring& ring, const std::vector<Switched>& terms, Extended& out,
                  bool accumulate) {
    std::vector<InnerProduct> products;
    std::size_t digits = 0;
    bool begun = false;
    for (const Switched& term : terms) {
        products.push_back(inner_product(ring, term, out.limbs, out.words.get()));
        digits = std::max(digits, term.digits.count);
        begun = begun || term.digits.begun;
    }
    if (products.size() == 1) {
        products[0].accumulate = accumulate;
        begun ? ring.key_products(products)
              : launch(products[0].places(), products[0], "products with a key");
        return;
    }
    const Array of_products(ring.memory(), products);
    const InnerProducts sum{ring.log_degree(), out.limbs, ring.size_q(), ring.size_p(),
                            ring.primes(), of_products.get(), products.size(), digits,
                            accumulate, out.words.get()};
    begun ? ring.key_products(sum) : launch(sum.places(), sum, "products with keys");
}

Digits decomposed(const Ring& ring, const std::vector<const Extended*>& xs) {
    if (xs.empty()) {
        return {0, 0, 0, {}};
    }
    const std::size_t limbs = xs[0]->limbs;
    Words seconds = ring.polynomial(xs.size() * limbs);
    std::vector<const Word*> parts;
    std::vector<Word*> quotients;
    for (const Extended* x : xs) {
        quotients.push_back(seconds.get() + parts.size() * limbs * ring.degree());
        parts.push_back(both_parts(ring, *x).second);
    }
    divide(ring, ring.divisor(0, true), parts, limbs, quotients);
    Digits digits = decomposed(ring, {quotients.begin(), quotients.end()}, limbs, true);
    digits.kept = std::move(seconds);
    return digits;
}

Addends first_part(const Ring& ring, const Extended& x) {
    return {x.words.get(), nullptr, x.limbs + ring.size_p(), nullptr};
}

Addends both_parts(const Ring& ring, const Extended& x) {
    const std::size_t limbs = x.limbs + ring.size_p();
    return {x.words.get(), x.words.get() + limbs * ring.degree(), limbs, nullptr};
}

std::vector<Polys> divided(const Ring& ring, const std::vector<Extended>& xs, int level,
                           bool begun) {
    if (level > 0 && ring.chain().limbs_at(level) != xs[0].limbs) {
        throw Error("internal error: a ciphertext has other primes than its level");
    }
    const Divisor divisor = ring.divisor(level, true);
    std::vector<Polys> out;
    std::vector<const Word*> parts;
    std::vector<Word*> quotients;
    for (const Extended& x : xs) {
        const Addends both = both_parts(ring, x);
        const Polys& own = out.emplace_back(ring, 2, x.limbs - divisor.primes);
        parts.insert(parts.end(), {both.first, both.second});
        quotients.insert(quotients.end(), {own.part(0), own.part(1)});
    }
    divide(ring, divisor, parts, out[0].limbs, quotients, begun);
    return out;
}

std::vector<Polys> switched(const Ring& ring, const std::vector<Switched>& xs, std::size_t limbs,
                            int level) {
    static_assert(HoistedProducts::most == 4);
    std::vector<Extended> results;
    std::vector<InnerProduct> products;
    for (const Switched& x : xs) {
        Word* out = results.emplace_back(ring, limbs).words.get();
        products.push_back(inner_product(ring, x, limbs, out));
        products.back().values = limbs - ring.divisor(level, true).primes;
    }
    if (xs[0].digits.begun) {
        ring.key_products(products);
        return divided(ring, results, level, true);
    }
    for (std::size_t first = 0; first < products.size(); first += HoistedProducts::most) {
        const InnerProduct& one = products[first];
        HoistedProducts some{std::min(products.size() - first, HoistedProducts::most),
                             {one, one, one, one}};
        std::copy_n(products.begin() + static_cast<std::ptrdiff_t>(first), some.count, some.of);
        some.count == 1 ? launch(one.places(), one, "products with a key")
                        : launch(one.places(), some, "products with keys");
    }
    return divided(ring, results, level);
}

std::vector<Polys> relinearised(const Ring& ring, const std::vector<const Polys*>& xs,
                                const SwitchKey& key, std::size_t limbs, int level) {
    std::vector<const Word*> thirds;
    for (const Polys* x : xs) {
        thirds.push_back(x->part(2));
    }
    const Digits digits = decomposed(ring, thirds, limbs, true);
    std::vector<Switched> each;
    for (std::size_t at = 0; at < xs.size(); ++at) {
        each.push_back({digits.of(at), &key, 1,
                        times_special(ring, xs[at]->part(0), xs[at]->part(1), limbs)});
    }
    return switched(ring, each, limbs, level);
}

std::uint32_t galois_of(const Ring& ring, std::size_t amount) {
    const std::uint64_t order = 2 * ring.degree();
    std::uint64_t element = 1;
    for (std::uint64_t power = 5; amount != 0; amount >>= 1, power = power * power % order) {
        element = (amount & 1) != 0 ? element * power % order : element;
    }
    return static_cast<std::uint32_t>(element);
}

std::uint32_t galois_of_conjugation(const Ring& ring) {
    return static_cast<std::uint32_t>(2 * ring.degree() - 1);
}

}  // namespace atlasc::ckks
