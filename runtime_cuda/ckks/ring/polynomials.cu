#include "ckks/ring/polynomials.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ckks/ring/switch_kernels.hpp"
#include "kernel.hpp"

namespace atlasc::ckks {
namespace {

Shape shape_of(const Ring& ring, std::size_t limbs) {
    return {ring.log_degree(), static_cast<std::uint32_t>(limbs)};
}

Source source(const Polys& a) { return {a.words.get(), a.limbs}; }

Residues sum(const Ring& ring, const Residues& a, const Residues& b, std::size_t limbs) {
    Residues result;
    for (std::size_t limb = 0; limb < limbs; ++limb) {
        result.of[limb] = add(a.of[limb], b.of[limb], ring.chain().q[limb]);
    }
    return result;
}

}  // namespace

Residues residues(const Ring& ring, double number, std::size_t limbs) {
    // |number| = mantissa 2^shift with a mantissa of 53 bits, exactly.
    int exponent = 0;
    const double rounded = std::nearbyint(number);
    const double fraction = std::frexp(std::fabs(rounded), &exponent);
    const int shift = std::max(exponent - 53, 0);
    const auto mantissa = static_cast<Word>(std::ldexp(fraction, exponent - shift));
    Residues result;
    for (std::size_t limb = 0; limb < limbs; ++limb) {
        const Prime& q = ring.chain().q[limb];
        Word residue = reduce(mantissa, q);
        for (int bit = 0; bit < shift; ++bit) {
            residue = add(residue, residue, q);
        }
        result.of[limb] = rounded < 0 ? negate(residue, q) : residue;
    }
    return result;
}

std::size_t Combination::parts() const {
    std::size_t most = products.empty() ? 2 : 3;
    for (const Term& term : terms) {
        most = std::max(most, term.x->parts);
    }
    return most;
}

bool Combination::takes(const Combination& other) const {
    return products.empty() || other.products.empty() || times == other.times;
}

void Combination::add(const Ring& ring, const Combination& other) {
    times = products.empty() ? other.times : times;
    products.insert(products.end(), other.products.begin(), other.products.end());
    constant = sum(ring, constant, other.constant, limbs);
    for (const Term& term : other.terms) {
        const auto same = std::find_if(terms.begin(), terms.end(),
                                       [&](const Term& own) { return own.x == term.x; });
        if (same == terms.end()) {
            terms.push_back(term);
        } else {
            same->number = sum(ring, same->number, term.number, limbs);
        }
    }
}

void Combination::twice(const Ring& ring) {
    times *= 2;
    constant = sum(ring, constant, constant, limbs);
    for (Term& term : terms) {
        term.number = sum(ring, term.number, term.number, limbs);
    }
}

namespace {

/// Sums that become one launch, as long as there is room for their operands.
class Batch {
public:
    Batch(const Ring& ring, std::size_t limbs) : degree_(ring.degree()) {
        kernel_.log_degree = ring.log_degree();
        kernel_.limbs = static_cast<std::uint32_t>(limbs);
        kernel_.primes = ring.primes();
    }

    void add(const Combination& sum, const Polys& out) {
        auto product = sum.products.begin();
        auto term = sum.terms.begin();
        const auto all = [&] { return product == sum.products.end() && term == sum.terms.end(); };
        if (!fits(sum)) {
            finish();
        }
        for (bool accumulate = false; !accumulate || !all(); accumulate = true) {
            if (accumulate) {
                finish();
            }
            Combine::Sum& own = kernel_.sum[kernel_.sums++];
            own = {static_cast<std::uint32_t>(out.parts), products_, products_, terms_, terms_,
                   accumulate, sum.times, out.words.get()};
            append(accumulate ? Residues() : sum.constant);
            for (; product != sum.products.end() && products_ < Combine::most_products; ++product) {
                kernel_.product[products_++] = {source(*product->a), source(*product->b)};
            }
            for (; term != sum.terms.end() && terms_ < Combine::most_terms && rows_ < rows();
                 ++term) {
                kernel_.term[terms_++] = {source(*term->x), term->x->parts};
                append(term->number);
            }
            own.products = products_;
            own.terms = terms_;
        }
    }

    void finish() {
        if (kernel_.sums != 0) {
            launch(kernel_.sums * kernel_.limbs * degree_, kernel_, "sums of ciphertexts");
        }
        kernel_.sums = rows_ = products_ = terms_ = 0;
    }

private:
    std::size_t rows() const { return Combine::most_numbers / kernel_.limbs; }

    bool fits(const Combination& sum) const {
        return kernel_.sums < Combine::most_sums &&
               products_ + sum.products.size() <= Combine::most_products &&
               terms_ + sum.terms.size() <= Combine::most_terms &&
               rows_ + 1 + sum.terms.size() <= rows();
    }

    void append(const Residues& numbers) {
        std::copy(numbers.of, numbers.of + kernel_.limbs,
                  kernel_.numbers + rows_++ * kernel_.limbs);
    }

    std::size_t degree_;
    Combine kernel_{};
    std::uint32_t products_ = 0;
    std::uint32_t terms_ = 0;
    std::uint32_t rows_ = 0;  ///< of numbers
};

}  // namespace

std::vector<Polys> computed(const Ring& ring, const std::vector<Combination>& sums) {
    std::vector<Polys> out;
    if (sums.empty()) {
        return out;
    }
    Batch batch(ring, sums[0].limbs);
    for (const Combination& sum : sums) {
        batch.add(sum, out.emplace_back(ring, sum.parts(), sum.limbs));
    }
    batch.finish();
    return out;
}

Polys computed(const Ring& ring, const Combination& sum) {
    return std::move(computed(ring, std::vector<Combination>{sum})[0]);
}

Polys product(const Ring& ring, const Polys& a, const PlainValues& plain, std::size_t limbs) {
    Polys out(ring, a.parts, limbs);
    launch(out.words.size(),
           TimesPolynomial{shape_of(ring, limbs), ring.primes(), source(a), plain,
                           out.words.get()},
           "product with a plaintext");
    return out;
}

Polys shifted(const Ring& ring, const Polys& a, const PlainValues& plain, std::size_t limbs) {
    Polys out(ring, a.parts, limbs);
    launch(out.words.size(),
           PlusPolynomial{shape_of(ring, limbs), ring.primes(), source(a), plain,
                          out.words.get()},
           "sum with a plaintext");
    return out;
}

void add_products(const Ring& ring, const std::vector<PlainTerm>& terms, std::size_t limbs,
                  std::size_t special, bool accumulate, Word* out) {
    const std::size_t extended = limbs + special;
    for (std::size_t first = 0; first < terms.size(); first += SumOfProducts::most) {
        SumOfProducts kernel{ring.log_degree(), limbs, ring.size_q(), extended, ring.primes(), 0,
                             {}, accumulate || first != 0, out};
        for (std::size_t at = first;
             at < terms.size() && kernel.count < SumOfProducts::most; ++at) {
            kernel.terms[kernel.count++] = {{terms[at].x, terms[at].stored}, terms[at].plain};
        }
        launch(2 * extended * ring.degree(), kernel, "sum of products with plaintexts");
    }
}

std::uint32_t inverse_galois(const Ring& ring, std::uint32_t galois) {
    // The units modulo 2N = 2^k have an exponent of 2^(k - 2).
    const std::uint32_t mask = static_cast<std::uint32_t>(2 * ring.degree() - 1);
    std::uint32_t result = 1;
    std::uint32_t power = galois;
    for (std::size_t exponent = ring.degree() / 2 - 1; exponent != 0; exponent >>= 1) {
        result = (exponent & 1) != 0 ? (result * power) & mask : result;
        power = (power * power) & mask;
    }
    return result;
}

namespace {

/// Of as many polynomials as a device works on together.
void divide_some(const Ring& ring, const Divisor& divisor, const Word* const* polynomials,
                 std::size_t count, std::size_t limbs, Word* const* out, bool begun) {
    const std::size_t degree = ring.degree();
    const std::size_t size = divisor.primes + divisor.special;
    const Words coefficients = ring.polynomial(count * size);
    const Words remainder = ring.polynomial(count * limbs);
    Limbs divided{size, limbs};
    divided.of_q = divisor.primes;
    Limbs remainders{limbs};
    for (std::size_t at = 0; at < count; ++at) {
        Word* own = coefficients.get() + at * size * degree;
        divided.add(own, polynomials[at] + limbs * degree);
        Word* rest = remainder.get() + at * limbs * degree;
        remainders.add(rest, begins_conversions() ? own : rest);
        remainders.blocks[at] = divisor.block;
        remainders.dividends[at] = polynomials[at];
        remainders.quotients[at] = out[at];
    }
    divided.scales = begins_conversions() ? divisor.block.inverses : nullptr;
    begun ? ring.end_backward(divided) : ring.backward(divided);
    remainders.converts = begins_conversions();
    if (!remainders.converts) {
        with_size(divisor.block.size, [&](auto constant) {
            constexpr std::size_t size = decltype(constant)::value;
            launch(count * degree,
                   Remainder<size>{ring.log_degree(), limbs, ring.size_qp(), ring.primes(),
                                   divisor.block, coefficients.get(), remainder.get()},
                   "remainder of a division");
        });
    }
    subtract_and_divide(ring, remainders, divisor.inverse);
}

}  // namespace

void subtract_and_divide(const Ring& ring, Limbs& remainders, const Word* inverse) {
    remainders.inverses = ends_divisions() ? inverse : nullptr;
    ring.forward(remainders);
    for (std::size_t at = 0; at < remainders.polynomials && !ends_divisions(); ++at) {
        launch(remainders.count * ring.degree(),
               Divide{ring.log_degree(), ring.primes(), remainders.dividends[at],
                      remainders.out[at], inverse, remainders.quotients[at]},
               "division by primes");
    }
}

void divide(const Ring& ring, const Divisor& divisor, const std::vector<const Word*>& polynomials,
            std::size_t limbs, const std::vector<Word*>& out, bool begun) {
    for (std::size_t first = 0; first < polynomials.size(); first += together()) {
        divide_some(ring, divisor, &polynomials[first],
                    std::min(together(), polynomials.size() - first), limbs, &out[first], begun);
    }
}

void lift_coefficients(const Ring& ring, const Word* coefficients, std::size_t from, Word* out,
                       std::size_t first, std::size_t count) {
    launch(count * ring.degree(),
           Lift{ring.log_degree(), ring.primes(), coefficients, from, first, out},
           "coefficients modulo other primes");
}

std::vector<Polys> rescaled(const Ring& ring, const std::vector<const Polys*>& xs, int level) {
    const std::size_t limbs = ring.chain().limbs_at(level - 1);
    std::vector<Polys> out;
    std::vector<const Word*> parts;
    std::vector<Word*> quotients;
    for (const Polys* x : xs) {
        const Polys& own = out.emplace_back(ring, x->parts, limbs);
        for (std::size_t part = 0; part < x->parts; ++part) {
            parts.push_back(x->part(part));
            quotients.push_back(own.part(part));
        }
    }
    divide(ring, ring.divisor(level, false), parts, limbs, quotients);
    return out;
}

}  // namespace atlasc::ckks
