#include "atlasc/paterson_stockmeyer.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "atlasc/error.hpp"

namespace atlasc {
namespace {

using Coefficients = std::vector<Coefficient>;

int bit_length(std::size_t number) {
    int bits = 0;
    for (; number != 0; number >>= 1) {
        ++bits;
    }
    return bits;
}

/// Levels below its argument at which T_index is.
int depth_of_power(std::size_t index) { return index > 1 ? bit_length(index - 1) : 0; }

bool is_zero(const Coefficient& c) {
    return std::all_of(c.begin(), c.end(), [](double number) { return number == 0.0; });
}

std::size_t degree(const Coefficients& c) {
    std::size_t top = c.size() - 1;
    while (top > 0 && is_zero(c[top])) {
        --top;
    }
    return top;
}

/// Replaces c by the remainder of c = quotient T_giant + remainder, for giant < top < 2 giant, and
/// returns the quotient. From T_(g+j) = 2 T_g T_j - T_(g-j).
Coefficients divide(Coefficients& c, std::size_t giant, std::size_t top) {
    Coefficients quotient = {c[giant]};
    for (std::size_t index = giant + 1; index <= top; ++index) {
        Coefficient doubled = c[index];
        for (std::size_t channel = 0; channel < doubled.size(); ++channel) {
            c[2 * giant - index][channel] -= c[index][channel];
            doubled[channel] *= 2.0;
        }
        quotient.push_back(std::move(doubled));
    }
    c.resize(giant);
    return quotient;
}

/// Splits coefficients for one baby-step count 2^baby - 1.
class Builder {
public:
    explicit Builder(int baby) : largest_baby_((std::size_t{1} << baby) - 1) {}

    ChebyshevPlan build(const Coefficients& coefficients, int levels) {
        sum(coefficients, levels);
        for (const std::size_t index : needed_) {
            make(index);
        }
        return {std::move(powers_), std::move(sums_)};
    }

private:
    std::size_t sum(Coefficients c, int depth) {
        Sum result{depth, {}, {}, {}};
        std::vector<std::pair<Coefficient, std::size_t>> lone;
        for (std::size_t top = degree(c); top > 0; top = degree(c)) {
            if (top <= largest_baby_ && depth_of_power(top) < depth) {
                break;
            }
            const std::size_t giant = std::size_t{1} << (bit_length(top) - 1);
            if (top == giant) {  // its quotient is a number: one more term, not a product
                lone.emplace_back(c[giant], giant);
                c.resize(giant);
                continue;
            }
            Coefficients quotient = divide(c, giant, top);
            result.products.emplace_back(sum(std::move(quotient), depth - 1), giant);
            needed_.insert(giant);
        }
        for (std::size_t index = 1; index < c.size(); ++index) {
            if (!is_zero(c[index])) {
                result.terms.emplace_back(c[index], index);
            }
        }
        result.terms.insert(result.terms.end(), lone.begin(), lone.end());
        for (const auto& term : result.terms) {
            needed_.insert(term.second);
        }
        result.constant = c[0];
        sums_.push_back(std::move(result));
        return sums_.size() - 1;
    }

    bool missing(std::size_t index) const { return index > 1 && made_.count(index) == 0; }

    /// Makes T_index, at its least depth, from as few powers that are not there as possible.
    void make(std::size_t index) {
        if (!missing(index)) {
            return;
        }
        std::size_t best = 0;
        std::pair<int, std::size_t> least;
        for (std::size_t left = (index + 1) / 2; left < index; ++left) {
            const std::size_t right = index - left;
            if (std::max(depth_of_power(left), depth_of_power(right)) >= depth_of_power(index)) {
                continue;
            }
            const std::pair<int, std::size_t> price = {
                missing(left) + missing(right) + missing(left - right), left - right};
            if (best == 0 || price < least) {
                best = left;
                least = price;
            }
        }
        const std::size_t right = index - best;
        make(best - right);
        make(right);
        make(best);
        made_.insert(index);
        powers_.push_back({index, best, right});
    }

    std::size_t largest_baby_;
    std::vector<Sum> sums_;
    std::vector<Power> powers_;
    std::set<std::size_t> needed_;
    std::set<std::size_t> made_;
};

/// One run of a plan: powers, each also kept at the levels that it was dropped to, and sums.
class Evaluation {
public:
    Evaluation(Engine& engine, const Ciphertext& x,
               const std::function<Plaintext(const Coefficient&)>& plaintext)
        : engine_(engine), plaintext_(plaintext), top_(engine.level(x)), powers_{{1, x}} {}

    Ciphertext run(const ChebyshevPlan& plan) {
        for (const Power& power : plan.powers) {
            powers_[power.index] = make(power);
        }
        Ciphertexts sums;
        for (const Sum& step : plan.sums) {
            sums.push_back(make(step, sums));
        }
        return sums.back();
    }

private:
    Ciphertext make(const Power& power) {
        const Ciphertext& left = powers_.at(power.left);
        if (power.left == power.right) {
            const Ciphertext square = engine_.square(left);
            return engine_.add_plain(engine_.add(square, square), -1.0);
        }
        const Ciphertext product = engine_.mul(left, powers_.at(power.right));
        return engine_.sub(engine_.add(product, product), powers_.at(power.left - power.right));
    }

    Ciphertext make(const Sum& step, const Ciphertexts& sums) {
        const int level = top_ - step.depth;
        Ciphertexts operands;
        std::vector<Plaintext> factors;
        for (const auto& [factor, index] : step.terms) {
            operands.push_back(at(index, level + 1));
            factors.push_back(plaintext_(factor));
        }
        Ciphertext total = operands.empty() ? nullptr : engine_.dot_plain(operands, factors);
        if (!step.products.empty()) {
            Ciphertexts quotients;
            Ciphertexts giants;
            for (const auto& [quotient, giant] : step.products) {
                quotients.push_back(sums.at(quotient));
                giants.push_back(at(giant, level + 1));
            }
            const Ciphertext part = engine_.dot(quotients, giants);
            total = total == nullptr ? part : engine_.add(total, part);
        }
        if (total == nullptr) {
            const Ciphertext argument = at(1, level);
            total = engine_.sub(argument, argument);
        }
        return is_zero(step.constant) ? total
                                      : engine_.add_plain(total, plaintext_(step.constant));
    }

    Ciphertext at(std::size_t index, int level) {
        Ciphertext& dropped = dropped_[{index, level}];
        if (dropped == nullptr) {
            dropped = engine_.drop_to(powers_.at(index), level);
        }
        return dropped;
    }

    Engine& engine_;
    const std::function<Plaintext(const Coefficient&)>& plaintext_;
    int top_;
    std::map<std::size_t, Ciphertext> powers_;
    std::map<std::pair<std::size_t, int>, Ciphertext> dropped_;
};

}  // namespace

std::size_t ChebyshevPlan::ciphertext_products() const {
    std::size_t count = powers.size();
    for (const Sum& sum : sums) {
        count += sum.products.size();
    }
    return count;
}

std::size_t ChebyshevPlan::relinearisations() const {
    std::size_t count = powers.size();
    for (const Sum& sum : sums) {
        count += sum.products.empty() ? 0 : 1;
    }
    return count;
}

std::size_t ChebyshevPlan::scalar_products() const {
    std::size_t count = 0;
    for (const Sum& sum : sums) {
        count += sum.terms.size();
    }
    return count;
}

ChebyshevPlan plan_chebyshev(const std::vector<Coefficient>& coefficients) {
    for (const Coefficient& c : coefficients) {
        if (!std::all_of(c.begin(), c.end(), [](double number) { return std::isfinite(number); })) {
            throw Error("a coefficient of a polynomial is not a finite number");
        }
    }
    if (coefficients.empty()) {
        throw Error("a polynomial has no coefficients");
    }
    const int levels = bit_length(coefficients.size() - 1);
    const auto price = [](const ChebyshevPlan& plan) {
        return std::make_tuple(3 * plan.relinearisations() + plan.ciphertext_products(),
                               plan.scalar_products());
    };
    ChebyshevPlan best = Builder(1).build(coefficients, levels);
    for (int baby = 2; baby <= levels; ++baby) {
        ChebyshevPlan plan = Builder(baby).build(coefficients, levels);
        if (price(plan) < price(best)) {
            best = std::move(plan);
        }
    }
    return best;
}

Ciphertext evaluate(const ChebyshevPlan& plan, Engine& engine, const Ciphertext& x,
                    const std::function<Plaintext(const Coefficient&)>& plaintext) {
    return Evaluation(engine, x, plaintext).run(plan);
}

}  // namespace atlasc
