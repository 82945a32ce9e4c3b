#include "ckks/ring/transform_check.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "atlasc/base/error.hpp"
#include "atlasc/base/threads.hpp"

namespace atlasc::ckks {
namespace {

using Limb = std::vector<Word>;

/// The transform of limbs modulo a prime on the host (Cooley and Tukey 1965), as plain as can be.
class Reference {
public:
    Reference(const Prime& q, int log_degree)
        : q_(q), log_degree_(log_degree), powers_(std::size_t{1} << log_degree) {
        const Word root = root_of(q, powers_.size());
        Word power = 1;
        for (std::uint32_t at = 0; at < powers_.size(); ++at) {
            powers_[reverse_bits(at, log_degree)] = power;
            power = multiply(power, root, q);
        }
    }

    /// What coefficients are after the first stages; values after all.
    Limb after(int stages, Limb a) const {
        std::size_t half = a.size();
        for (std::size_t blocks = 1; blocks < std::size_t{1} << stages; blocks *= 2) {
            half /= 2;
            for (std::size_t block = 0; block < blocks; ++block) {
                const Word power = powers_[blocks + block];
                for (std::size_t at = 2 * block * half; at < (2 * block + 1) * half; ++at) {
                    const Word product = multiply(a[at + half], power, q_);
                    a[at + half] = subtract(a[at], product, q_);
                    a[at] = add(a[at], product, q_);
                }
            }
        }
        return a;
    }

    /// How what was found differs from what was expected of `before`.
    std::string finding(const Limb& before, const Limb& found, const Limb& expected) const {
        if (found == before) {
            return "the buffer is unchanged, so that no kernel ran,";
        }
        Limb reduced = found;
        for (Word& value : reduced) {
            value = reduce(value, q_);
        }
        const std::string what = reduced == found ? "" : "not reduced, and ";
        if (reduced == expected) {
            return "numbers are not reduced, but else the right ones,";
        }
        for (int stages = 1; stages < log_degree_; ++stages) {
            // Each stage backwards takes one of those forwards back, but for a factor of 2.
            Limb backwards = after(log_degree_ - stages, expected);
            for (Word& value : backwards) {
                value = multiply(value, Word{1} << stages, q_);
            }
            if (reduced == after(stages, before) || reduced == backwards) {
                return "numbers are " + what + "those after " + std::to_string(stages) + " of " +
                       std::to_string(log_degree_) + " stages, so that a kernel did not run,";
            }
        }
        return "numbers are " + what + order(reduced, expected);
    }

private:
    std::string order(Limb found, Limb expected) const {
        const auto reordered = [&](const std::function<std::uint32_t(std::uint32_t)>& place) {
            std::uint32_t at = 0;
            return std::all_of(found.begin(), found.end(),
                               [&](Word value) { return value == expected[place(at++)]; });
        };
        if (reordered([&](std::uint32_t at) { return reverse_bits(at, log_degree_); })) {
            return "the right ones in bit-reversed order";
        }
        // By another root, psi^g, place 0 has the value at psi^g.
        const auto first = std::find(expected.begin(), expected.end(), found[0]);
        const auto place = static_cast<std::uint32_t>(first - expected.begin());
        const std::uint32_t power = 2 * reverse_bits(place, log_degree_) + 1;
        if (first != expected.end() &&
            reordered([&](std::uint32_t at) { return permuted(at, power, log_degree_); })) {
            return "the values at another root of unity, the expected one to the power of " +
                   std::to_string(power) + ",";
        }
        std::sort(found.begin(), found.end());
        std::sort(expected.begin(), expected.end());
        return found == expected ? "the right ones in another order" : "wrong";
    }

    Prime q_;
    int log_degree_;
    Limb powers_;  ///< of the root, power i at rev(i)
};

/// "1 to 4, 7" of places from 0 on, in order.
std::string ranges(const std::vector<std::size_t>& places) {
    std::string text;
    for (std::size_t at = 0; at < places.size();) {
        std::size_t end = at + 1;
        while (end < places.size() && places[end] == places[end - 1] + 1) {
            ++end;
        }
        text += (text.empty() ? "" : ", ") + std::to_string(places[at] + 1);
        text += end == at + 1 ? "" : " to " + std::to_string(places[end - 1] + 1);
        at = end;
    }
    return text;
}

/// Primes modulo which numbers differ alike.
struct Alike {
    std::vector<std::size_t> primes;
    std::size_t differing = 0;  ///< numbers
    std::size_t first = 0;      ///< of them, modulo the first of these primes
};

/// What differs in limbs modulo all primes; empty where nothing does.
std::string differences(const std::vector<Prime>& primes, int log_degree,
                        const std::vector<Word>& before, const std::vector<Word>& found,
                        const std::vector<Word>& expected) {
    const std::size_t degree = std::size_t{1} << log_degree;
    std::map<std::string, Alike> findings;
    for (std::size_t prime = 0; prime < primes.size(); ++prime) {
        const auto limb = [&](const std::vector<Word>& of) {
            const auto start = of.begin() + static_cast<std::ptrdiff_t>(prime * degree);
            return Limb(start, start + static_cast<std::ptrdiff_t>(degree));
        };
        const Limb right = limb(expected);
        const Limb made = limb(found);
        if (made == right) {
            continue;
        }
        const Reference reference(primes[prime], log_degree);
        Alike& alike = findings[reference.finding(limb(before), made, right)];
        for (std::size_t at = degree; at-- > 0;) {
            if (made[at] != right[at]) {
                ++alike.differing;
                alike.first = alike.primes.empty() ? at : alike.first;
            }
        }
        alike.primes.push_back(prime);
    }
    std::string text;
    for (const auto& [finding, alike] : findings) {
        text += (text.empty() ? "" : "; ") + finding + " modulo primes " + ranges(alike.primes) +
                " of " + std::to_string(primes.size()) + " (" + std::to_string(alike.differing) +
                " of " + std::to_string(alike.primes.size() * degree) +
                " differ, the first at place " + std::to_string(alike.first) + ")";
    }
    return text;
}

}  // namespace

void check_transforms(const Ring& ring, const std::vector<Prime>& primes) {
    const std::size_t degree = ring.degree();
    std::vector<Word> coefficients(primes.size() * degree);
    std::vector<Word> values(coefficients.size());
    parallel(primes.size(), 1, [&](std::size_t begin, std::size_t end) {
        for (std::size_t prime = begin; prime < end; ++prime) {
            const Prime& q = primes[prime];
            Limb limb(degree);
            for (std::size_t at = 0; at < degree; ++at) {
                limb[at] = at % 3 == 0 ? q.value - 1 : reduce(at * 0x9e3779b97f4a7c15ULL, q);
            }
            std::copy(limb.begin(), limb.end(), &coefficients[prime * degree]);
            limb = Reference(q, ring.log_degree()).after(ring.log_degree(), std::move(limb));
            std::copy(limb.begin(), limb.end(), &values[prime * degree]);
        }
    });
    std::map<std::string, std::string> ways;  // by what differs
    const auto check = [&](const std::string& way, bool forwards, const auto& transform) {
        const std::vector<Word>& before = forwards ? coefficients : values;
        const std::vector<Word>& expected = forwards ? values : coefficients;
        std::vector<Word> found;
        try {
            found = transform(before);
        } catch (Error& error) {
            error.where = "the first transforms: " + way;
            throw;
        }
        const std::string text =
            differences(primes, ring.log_degree(), before, found, expected);
        if (!text.empty()) {
            std::string& alike = ways[text];
            alike += (alike.empty() ? "" : ", ") + way;
        }
    };
    const auto in_place = [&](const std::vector<Word>& before, const auto& transform) {
        const Words limbs = uploaded(ring.memory(), before);
        transform(limbs.get());
        synchronize();
        return downloaded(limbs.get(), before.size());
    };
    // Each of them is a kernel of its own in a library.
    check("forwards", true, [&](const std::vector<Word>& before) {
        return in_place(before, [&](Word* in) { ring.forward(in, primes.size()); });
    });
    check("forwards with special primes", true, [&](const std::vector<Word>& before) {
        return in_place(before, [&](Word* in) {
            Limbs limbs{primes.size(), 0, ring.size_q()};
            limbs.add(in, in);
            ring.forward(limbs);
        });
    });
    check("backwards", false, [&](const std::vector<Word>& before) {
        return in_place(before, [&](Word* in) { ring.backward(in, in, primes.size()); });
    });
    check("backwards to another buffer", false, [&](const std::vector<Word>& before) {
        // In two halves, which need no more memory than the transforms in place.
        std::vector<Word> found;
        const std::size_t half = (primes.size() + 1) / 2;
        for (std::size_t first = 0; first < primes.size(); first += half) {
            const std::size_t count = std::min(half, primes.size() - first);
            const auto start = before.begin() + static_cast<std::ptrdiff_t>(first * degree);
            const std::vector<Word> some(start, start + static_cast<std::ptrdiff_t>(count * degree));
            const Words in = uploaded(ring.memory(), some);
            const Words out = uploaded(ring.memory(), some);
            ring.backward(out.get(), in.get(), count, first);
            synchronize();
            const std::vector<Word> part = downloaded(out.get(), some.size());
            found.insert(found.end(), part.begin(), part.end());
        }
        return found;
    });
    if (ways.empty()) {
        return;
    }
    std::string why;
    for (const auto& [text, all] : ways) {
        why += all + ": " + text + "; ";
    }
    throw Error("the transform of this build is not the expected one", why + device_facts(),
                "build without flags that change arithmetic, such as -ffast-math; of a library, "
                "docs/backend-phantom.md says what each finding means, and what to try");
}

}  // namespace atlasc::ckks
