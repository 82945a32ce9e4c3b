#include "bootstrap.hpp"

#include <algorithm>

namespace atlasc::bootstrapping {
namespace {

std::vector<std::vector<GiantStep>> prepared(const std::vector<SparseMatrix>& stages) {
    std::vector<std::vector<GiantStep>> result;
    for (const SparseMatrix& stage : stages) {
        result.push_back(baby_giant(stage));
    }
    return result;
}

ChebyshevPlan planned(const std::vector<double>& numbers) {
    std::vector<Coefficient> coefficients;
    for (const double number : numbers) {
        coefficients.push_back({number});
    }
    return plan_chebyshev(coefficients);
}

}  // namespace

Bootstrap::Bootstrap(const Parameters& parameters)
    : levels_left_(parameters.levels_left),
      slots_(static_cast<std::size_t>(parameters.ring_degree / 2)),
      budget_(budget(parameters)),
      chebyshev_(planned(budget_.reduction.chebyshev)) {
    coeffs_to_slots_ =
        prepared(coeffs_to_slots(slots_, parameters.cts_stages, budget_.cts_factor));
    slots_to_coeffs_ =
        prepared(slots_to_coeffs(slots_, parameters.stc_stages, 0.5 * budget_.stc_factor));
}

int Bootstrap::levels() const {
    return static_cast<int>(coeffs_to_slots_.size() + slots_to_coeffs_.size()) +
           budget_.reduction.levels();
}

std::map<std::size_t, int> Bootstrap::rotations() const {
    std::map<std::size_t, int> result;
    const auto use = [&result](std::size_t amount, int level) {
        if (amount != 0) {
            int& highest = result.try_emplace(amount, level).first->second;
            highest = std::max(highest, level);
        }
    };
    int level = levels_left_ + levels();
    for (const Stages* stages : {&coeffs_to_slots_, &slots_to_coeffs_}) {
        for (const std::vector<GiantStep>& stage : *stages) {
            for (const std::size_t amount : baby_rotations(stage)) {
                use(amount, level);
            }
            for (const GiantStep& giant : stage) {
                use(giant.rotation, level);
            }
            --level;
        }
        level -= budget_.reduction.levels();
    }
    return result;
}

Ciphertext Bootstrap::reduce(Engine& engine, const Ciphertext& x, bool first_halved) const {
    const EvalMod& reduction = budget_.reduction;
    // A factor of all coefficients is one of the sum.
    const auto number = [&](const Coefficient& coefficient) -> Plaintext {
        if (!first_halved) {
            return coefficient[0];
        }
        return Deferred{0, [slots = slots_, number = coefficient[0]] {
                            Vector numbers(slots, number);
                            numbers[0] /= 2;
                            return numbers;
                        }};
    };
    const bool shifted = reduction.shift != 0.0;
    const Ciphertext argument =
        shifted ? engine.add_plain(x, -reduction.shift / reduction.domain) : x;
    Ciphertext v = evaluate(chebyshev_, engine, argument, number);
    for (const double constant : reduction.double_angles) {
        const Ciphertext square = engine.square(v);
        v = engine.add_plain(engine.add(square, square), -constant);
    }
    if (reduction.arcsine == 3) {
        v = engine.mul(v, engine.add_plain(engine.square(v), 1.0));
    } else if (reduction.arcsine == 5) {
        const Ciphertext inner = engine.add_plain(engine.square(v), reduction.square);
        v = engine.mul(v, engine.add_plain(engine.square(inner), reduction.constant));
    }
    return v;
}

Ciphertext Bootstrap::operator()(Engine& engine, const Ciphertext& raised) const {
    const Ciphertext part = half(engine, raised, false);
    return engine.add(part, part);
}

Ciphertexts Bootstrap::refresh(Engine& engine, const Ciphertexts& xs,
                               const std::function<Ciphertext(const Ciphertext&)>& raise) const {
    Ciphertexts result;
    for (std::size_t at = 0; at < xs.size(); at += 2) {
        const bool paired = at + 1 < xs.size();
        Ciphertext both = engine.drop_to(xs[at], 0);
        if (paired) {
            both = engine.add(both, engine.times_i(engine.drop_to(xs[at + 1], 0)));
        }
        // Double angles and the arcsine are not linear: a half before them is none after them.
        const bool real = !paired && budget_.reduction.double_angles.empty() &&
                          budget_.reduction.arcsine == 1;
        const Ciphertext part = half(engine, raise(both), real);
        const Ciphertext conjugate = engine.conjugate(part);
        const Ciphertext sum = engine.add(part, conjugate);
        result.push_back(real ? engine.add(sum, sum) : sum);
        if (paired) {
            result.push_back(engine.times_i(engine.sub(conjugate, part)));
        }
    }
    return result;
}

Ciphertext Bootstrap::half(Engine& engine, const Ciphertext& raised, bool real) const {
    Ciphertext x = raised;
    for (const std::vector<GiantStep>& stage : coeffs_to_slots_) {
        x = engine.transform(x, stage);
    }
    // The factor of CtS holds the half of both parts: (c + conj c)/2 and i (conj c - c)/2.
    const Ciphertext conjugate = engine.conjugate(x);
    const Ciphertext lower = reduce(engine, engine.add(x, conjugate), real);
    x = real ? lower
             : engine.add(lower, engine.times_i(reduce(
                                     engine, engine.times_i(engine.sub(conjugate, x)), false)));
    for (const std::vector<GiantStep>& stage : slots_to_coeffs_) {
        x = engine.transform(x, stage);
    }
    return x;
}

}  // namespace atlasc::bootstrapping
