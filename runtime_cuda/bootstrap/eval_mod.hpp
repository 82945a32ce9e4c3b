// The modular reduction of a bootstrap: polynomials that take x = I + e to e, for integers |I| <= K
// and |e| <= A/R, with R = q0 / scale and A the largest slot.
//
// e is about sin(2 pi x) / (2 pi). Without double angles, the sine is one odd Chebyshev sum. With r
// of them, a Chebyshev sum approximates cos(2 pi (x - 1/4) / 2^r) and cos(2 t) = 2 cos(t)^2 - 1
// doubles the angle r times. An arcsine of degree 3 or 5 may follow. A sum needs to be right near
// integers only, and where it has coefficients to spare, its values and slopes at the integers are
// made exact: a correction that leaves it as small as it was in between.
//
// Sources: Han and Ki, CT-RSA 2020 (cosine, double angles, a fit that is good near integers); Lee,
// Lee, Lee, Kim, No, EUROCRYPT 2021 (arcsine); Bossuat, Mouchet, Troncoso-Pastoriza, Hubaux,
// EUROCRYPT 2021 (constants folded into the double angles); Bossuat, Troncoso-Pastoriza, Hubaux,
// ACNS 2022 (the distribution of I for a sparse secret).
#pragma once

#include <vector>

namespace atlasc::bootstrapping {

/// log2 of the probability that any of the `ring_degree` coefficients of a ciphertext, raised from
/// q0, exceeds q0 * bound, for a ternary secret of this Hamming weight. A coefficient over q0 is a
/// sum of weight + 1 numbers that are uniform in [-1/2, 1/2] (Irwin-Hall). -infinity if impossible.
double log2_failure(long ring_degree, int hamming_weight, int bound);

/// The least K with log2_failure(..., K) <= log2_probability. Throws Error.
int choose_bound(long ring_degree, int hamming_weight, double log2_probability);

/// What a modular reduction has to serve.
struct ReductionTask {
    long ring_degree = 65536;
    int bound = 16;          ///< K
    double ratio = 1024;     ///< R = q0 / scale, at least 4 A
    double amplitude = 1.0;  ///< A
};

/// How to reduce: with t = (x - shift) / domain in [-1, 1],
///   v = sum of chebyshev[k] T_k(t)
///   v = 2 v^2 - c                          for each c of double_angles
///   v = v (v^2 + 1)                        if arcsine is 3
///   v = v ((v^2 + square)^2 + constant)    if arcsine is 5
/// and e = gain v. No step multiplies by a constant; the domain goes into CoeffsToSlots and
/// the gain into SlotsToCoeffs.
struct EvalMod {
    ReductionTask task;
    std::vector<double> chebyshev;  ///< [degree + 1]; the odd or the even ones are zero
    std::vector<double> double_angles;
    int arcsine = 1;  ///< 1 (none), 3 or 5
    double square = 0.0;
    double constant = 0.0;
    double shift = 0.0;
    double domain = 1.0;
    double gain = 1.0;

    int degree() const { return static_cast<int>(chebyshev.size()) - 1; }

    /// Levels from t to v: the sum by Paterson-Stockmeyer with leading quotients split, double
    /// angles, arcsine.
    int levels() const;

    /// e for one x, in double precision.
    double operator()(double x) const;
};

/// degree: of the Chebyshev sum, from 3 on. Throws Error.
EvalMod make_eval_mod(const ReductionTask& task, int degree, int double_angles, int arcsine);

/// The largest error of a slot that the reduction causes, in exact arithmetic, whatever the
/// message: any slots of absolute value up to A, complex or not, any |I| <= K.
///
/// A slot is the sum of N coefficients m_k times numbers of absolute value 1, and sum m_k^2 <= A^2
/// (Parseval). So an error of a coefficient of at most E0 + E1 |m| + E2 m^2 becomes an error of a
/// slot of at most N E0 + sqrt(N) A E1 + A^2 E2. The sine's own error is all E2.
double error_bound(const EvalMod& eval_mod);

/// The reduction of fewest levels, then of the lowest degree, whose error_bound is at most
/// `max_error`. Throws Error if none of up to 12 levels is.
EvalMod choose_eval_mod(const ReductionTask& task, double max_error);

}  // namespace atlasc::bootstrapping
