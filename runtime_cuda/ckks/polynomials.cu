#include "ckks/polynomials.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernel.hpp"

namespace atlasc::ckks {
namespace {

/// Which element of [part][limb][N] an index is.
struct Shape {
    int log_degree;
    std::uint32_t limbs;

    ATLASC_DEVICE std::uint32_t row(std::size_t at) const {
        return static_cast<std::uint32_t>(at >> log_degree);
    }
    ATLASC_DEVICE std::size_t limb(std::size_t at) const { return row(at) % limbs; }
    ATLASC_DEVICE std::size_t part(std::size_t at) const { return row(at) / limbs; }

    /// The same element where every part has `stored` limbs.
    ATLASC_DEVICE std::size_t in(std::size_t at, std::size_t stored) const {
        const std::size_t degree = std::size_t{1} << log_degree;
        return ((part(at) * stored + limb(at)) << log_degree) + (at & (degree - 1));
    }
};

struct Source {
    const Word* words;
    std::size_t limbs;
};

enum class Kind { sum, difference };

struct Combine {
    Shape shape;
    const Prime* primes;
    Source a;
    Source b;
    Kind kind;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const Prime& q = primes[shape.limb(at)];
        const Word x = a.words[shape.in(at, a.limbs)];
        const Word y = b.words[shape.in(at, b.limbs)];
        out[at] = kind == Kind::sum ? add(x, y, q) : subtract(x, y, q);
    }
};

struct Negate {
    Shape shape;
    const Prime* primes;
    Source a;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        out[at] = negate(a.words[shape.in(at, a.limbs)], primes[shape.limb(at)]);
    }
};

/// a b + sum, of which there may be none: a product of residues leaves room for another one.
ATLASC_DEVICE inline Word multiply_add(Word a, Word b, const Source& sum, const Shape& shape,
                                    std::size_t at, const Prime& q) {
    Wide result = static_cast<Wide>(a) * b;
    if (sum.words != nullptr) {
        result += sum.words[shape.in(at, sum.limbs)];
    }
    return reduce(result, q);
}

/// Every part times a polynomial: the element of the same limb and place.
struct TimesPolynomial {
    Shape shape;
    const Prime* primes;
    Source a;
    const Word* polynomial;
    Source sum;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t place = at - ((shape.part(at) * shape.limbs) << shape.log_degree);
        out[at] = multiply_add(a.words[shape.in(at, a.limbs)], polynomial[place], sum, shape, at,
                               primes[shape.limb(at)]);
    }
};

struct TimesNumber {
    Shape shape;
    const Prime* primes;
    Source a;
    Residues number;
    Source sum;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t limb = shape.limb(at);
        out[at] = multiply_add(a.words[shape.in(at, a.limbs)], number.of[limb], sum, shape, at,
                               primes[limb]);
    }
};

struct PlusPolynomial {
    Shape shape;
    const Prime* primes;
    Source a;
    const Word* polynomial;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const Word x = a.words[shape.in(at, a.limbs)];
        out[at] = shape.part(at) == 0 ? add(x, polynomial[at], primes[shape.limb(at)]) : x;
    }
};

/// A constant has the same value at every root of unity.
struct PlusNumber {
    Shape shape;
    const Prime* primes;
    Source a;
    Residues number;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t limb = shape.limb(at);
        const Word x = a.words[shape.in(at, a.limbs)];
        out[at] = shape.part(at) == 0 ? add(x, number.of[limb], primes[limb]) : x;
    }
};

/// (a0 + a1 s) (b0 + b1 s) at one place of the two polynomials.
struct AddProduct {
    int log_degree;
    const Prime* primes;
    Source a;
    Source b;
    Source sum;
    Word* out;
    bool first;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const Prime& q = primes[at >> log_degree];
        const Word a0 = a.words[at];
        const Word a1 = a.words[at + (a.limbs << log_degree)];
        const Word b0 = b.words[at];
        const Word b1 = b.words[at + (b.limbs << log_degree)];
        const std::size_t part = sum.limbs << log_degree;
        Wide d0 = static_cast<Wide>(a0) * b0;
        Wide d1 = static_cast<Wide>(a0) * b1 + static_cast<Wide>(a1) * b0;
        Wide d2 = static_cast<Wide>(a1) * b1;
        if (!first) {
            d0 += out[at];
            d1 += out[at + part];
            d2 += out[at + 2 * part];
        }
        out[at] = reduce(d0, q);
        out[at + part] = reduce(d1, q);
        out[at + 2 * part] = reduce(d2, q);
    }
};

struct Divide {
    int log_degree;
    const Prime* primes;
    Division division;
    std::uint32_t back;  ///< galois^-1: where a value goes to

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t limb = at >> log_degree;
        const Prime& q = primes[limb];
        Word x = multiply(subtract(division.values[at], division.minuend[at], q),
                          division.inverse[limb], q);
        if (division.addend != nullptr) {
            x = add(x, division.addend[at], q);
        }
        const std::size_t start = limb << log_degree;
        const auto place = static_cast<std::uint32_t>(at - start);
        division.out[back == 1 ? at : start + permuted(place, back, log_degree)] = x;
    }
};

struct Lift {
    int log_degree;
    const Prime* primes;
    const Word* coefficients;
    std::size_t from;
    std::size_t first;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t place = at & ((std::size_t{1} << log_degree) - 1);
        out[at] = lift(coefficients[place], primes[from], primes[first + (at >> log_degree)]);
    }
};

Shape shape_of(const Ring& ring, std::size_t limbs) {
    return {ring.log_degree(), static_cast<std::uint32_t>(limbs)};
}

Source source(const Polys& a) { return {a.words.get(), a.limbs}; }

Source source(const Polys* a) { return a == nullptr ? Source{nullptr, 0} : source(*a); }

Polys combined(const Ring& ring, const Polys& a, const Polys& b, std::size_t limbs, Kind kind) {
    Polys out(ring, a.parts, limbs);
    launch(out.words.size(),
           Combine{shape_of(ring, limbs), ring.primes(), source(a), source(b), kind,
                   out.words.get()},
           "sum of ciphertexts");
    return out;
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

Polys sum(const Ring& ring, const Polys& a, const Polys& b, std::size_t limbs) {
    return combined(ring, a, b, limbs, Kind::sum);
}

Polys difference(const Ring& ring, const Polys& a, const Polys& b, std::size_t limbs) {
    return combined(ring, a, b, limbs, Kind::difference);
}

Polys negated(const Ring& ring, const Polys& a, std::size_t limbs) {
    Polys out(ring, a.parts, limbs);
    launch(out.words.size(),
           Negate{shape_of(ring, limbs), ring.primes(), source(a), out.words.get()},
           "negation of a ciphertext");
    return out;
}

Polys product(const Ring& ring, const Polys& a, const Word* polynomial, std::size_t limbs,
              const Polys* sum) {
    Polys out(ring, a.parts, limbs);
    launch(out.words.size(),
           TimesPolynomial{shape_of(ring, limbs), ring.primes(), source(a), polynomial,
                           source(sum), out.words.get()},
           "product with a plaintext");
    return out;
}

Polys product(const Ring& ring, const Polys& a, const Residues& number, std::size_t limbs,
              const Polys* sum) {
    Polys out(ring, a.parts, limbs);
    launch(out.words.size(),
           TimesNumber{shape_of(ring, limbs), ring.primes(), source(a), number, source(sum),
                       out.words.get()},
           "product with a number");
    return out;
}

Polys shifted(const Ring& ring, const Polys& a, const Word* polynomial, std::size_t limbs) {
    Polys out(ring, a.parts, limbs);
    launch(out.words.size(),
           PlusPolynomial{shape_of(ring, limbs), ring.primes(), source(a), polynomial,
                          out.words.get()},
           "sum with a plaintext");
    return out;
}

Polys shifted(const Ring& ring, const Polys& a, const Residues& number, std::size_t limbs) {
    Polys out(ring, a.parts, limbs);
    launch(out.words.size(),
           PlusNumber{shape_of(ring, limbs), ring.primes(), source(a), number, out.words.get()},
           "sum with a number");
    return out;
}

void add_product(const Ring& ring, const Polys& a, const Polys& b, Polys& sum, bool first) {
    launch(sum.limbs * ring.degree(),
           AddProduct{ring.log_degree(), ring.primes(), source(a), source(b), source(sum),
                      sum.words.get(), first},
           "product of ciphertexts");
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

void divide(const Ring& ring, const Division& division, std::size_t limbs) {
    const std::uint32_t back = inverse_galois(ring, division.galois);
    launch(limbs * ring.degree(), Divide{ring.log_degree(), ring.primes(), division, back},
           "division by a prime");
}

void lift_coefficients(const Ring& ring, const Word* coefficients, std::size_t from, Word* out,
                       std::size_t first, std::size_t count) {
    launch(count * ring.degree(),
           Lift{ring.log_degree(), ring.primes(), coefficients, from, first, out},
           "coefficients modulo other primes");
}

Polys rescaled(const Ring& ring, const Polys& a, std::size_t limbs, std::size_t left) {
    const std::size_t last = limbs - 1;
    Polys out(ring, a.parts, last);
    const Words coefficients = ring.polynomial(1);
    const Words rounding = ring.polynomial(last);
    for (std::size_t part = 0; part < a.parts; ++part) {
        ring.backward(coefficients.get(), a.part(part) + last * ring.degree(), 1, last);
        lift_coefficients(ring, coefficients.get(), last, rounding.get(), 0, last);
        ring.forward(rounding.get(), last);
        divide(ring,
               {a.part(part), rounding.get(), ring.inverse_of_prime(last), nullptr, 1,
                out.part(part)},
               last);
    }
    return last == left ? std::move(out) : rescaled(ring, out, last, left);
}

}  // namespace atlasc::ckks
