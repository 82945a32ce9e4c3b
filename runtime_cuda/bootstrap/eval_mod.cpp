#include "eval_mod.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "atlasc/error.hpp"
#include "atlasc/numbers.hpp"

namespace atlasc::bootstrapping {
namespace {

constexpr int max_levels = 12;

/// Room beyond K for the message and for errors.
constexpr double margin = 0.25;

/// Where the last Chebyshev coefficient is below, a correction at the integers is as small.
constexpr double nearly_converged = 1e-3;

double clenshaw(const std::vector<double>& chebyshev, double t) {
    double next = 0.0, after = 0.0;
    for (std::size_t k = chebyshev.size(); k-- > 1;) {
        after = std::exchange(next, 2.0 * t * next - after + chebyshev[k]);
    }
    return t * next - after + chebyshev[0];
}

/// The Chebyshev coefficients of a function on [-1, 1] that is odd or even; the others are zero.
template <typename Function>
std::vector<double> interpolate(int degree, int parity, Function function) {
    // Far more nodes than coefficients: what is left is the truncated series.
    const int nodes = 8 * (degree + 1);
    std::vector<double> result(static_cast<std::size_t>(degree) + 1, 0.0);
    for (int node = 0; node < nodes; ++node) {
        const double angle = pi * (node + 0.5) / nodes;
        const double value = function(std::cos(angle)) * 2.0 / nodes;
        for (int k = parity; k <= degree; k += 2) {
            result[static_cast<std::size_t>(k)] += value * std::cos(k * angle);
        }
    }
    if (parity == 0) {
        result[0] *= 0.5;
    }
    return result;
}

/// Solves A x = b for a symmetric positive definite A by Cholesky's decomposition, in place.
std::vector<double> solve(std::vector<std::vector<double>> a, std::vector<double> b) {
    const std::size_t size = b.size();
    for (std::size_t j = 0; j < size; ++j) {
        for (std::size_t k = 0; k < j; ++k) {
            a[j][j] -= a[j][k] * a[j][k];
        }
        a[j][j] = std::sqrt(a[j][j]);
        for (std::size_t i = j + 1; i < size; ++i) {
            for (std::size_t k = 0; k < j; ++k) {
                a[i][j] -= a[i][k] * a[j][k];
            }
            a[i][j] /= a[j][j];
        }
    }
    for (std::size_t i = 0; i < size; ++i) {
        for (std::size_t k = 0; k < i; ++k) {
            b[i] -= a[i][k] * b[k];
        }
        b[i] /= a[i][i];
    }
    for (std::size_t i = size; i-- > 0;) {
        for (std::size_t k = i + 1; k < size; ++k) {
            b[i] -= a[k][i] * b[k];
        }
        b[i] /= a[i][i];
    }
    return b;
}

double dot(const std::vector<double>& left, const std::vector<double>& right) {
    double sum = 0.0;
    for (std::size_t i = 0; i < left.size(); ++i) {
        sum += left[i] * right[i];
    }
    return sum;
}

/// Adds the smallest odd Chebyshev sum that makes values 0 and slopes `slope` at t = I / domain.
///
/// The smallest one in the sense of least squares of the coefficients: A' (A A')^-1 residual.
void make_exact_at_integers(std::vector<double>& chebyshev, int bound, double domain,
                            double slope) {
    const auto count = chebyshev.size();
    const auto top = static_cast<double>(count - 1);
    std::vector<std::vector<double>> rows;
    std::vector<double> residual;
    for (int integer = 0; integer <= bound; ++integer) {
        const double angle = std::acos(integer / domain);
        std::vector<double> value(count, 0.0);
        std::vector<double> derivative(count, 0.0);
        for (std::size_t k = 1; k < count; k += 2) {
            const auto order = static_cast<double>(k);
            value[k] = std::cos(order * angle);
            // Slopes are divided by the degree, so that all conditions have about one size.
            derivative[k] = order * std::sin(order * angle) / std::sin(angle) / top;
        }
        if (integer > 0) {  // an odd sum is zero at zero
            residual.push_back(-dot(value, chebyshev));
            rows.push_back(std::move(value));
        }
        residual.push_back(slope / top - dot(derivative, chebyshev));
        rows.push_back(std::move(derivative));
    }
    std::vector<std::vector<double>> gram(rows.size(), std::vector<double>(rows.size()));
    for (std::size_t i = 0; i < rows.size(); ++i) {
        for (std::size_t j = 0; j < rows.size(); ++j) {
            gram[i][j] = dot(rows[i], rows[j]);
        }
    }
    const std::vector<double> weights = solve(std::move(gram), std::move(residual));
    for (std::size_t i = 0; i < rows.size(); ++i) {
        for (std::size_t k = 0; k < count; ++k) {
            chebyshev[k] += weights[i] * rows[i][k];
        }
    }
}

int ceil_log2(int value) {
    int log = 0;
    while ((1 << log) < value) {
        ++log;
    }
    return log;
}

int arcsine_levels(int arcsine) { return arcsine == 1 ? 0 : (arcsine == 3 ? 2 : 3); }

/// What the sine and the arcsine's polynomial make of e if the Chebyshev sum is exact.
double ideal_reduction(int arcsine, double e) {
    const double s = std::sin(2.0 * pi * e);
    double angle = s;
    if (arcsine >= 3) {
        angle += s * s * s / 6.0;
    }
    if (arcsine == 5) {
        angle += 3.0 * std::pow(s, 5) / 40.0;
    }
    return angle / (2.0 * pi);
}

}  // namespace

double log2_failure(long ring_degree, int hamming_weight, int bound) {
    // P(sum > K) = F(x) with x = n/2 - K and F(x) = 1/n! sum_k (-1)^k binomial(n, k) (x - k)^n. The
    // terms alternate, but x is small beside n/2 wherever the probability is small.
    const int n = hamming_weight + 1;
    const long double x = 0.5L * n - bound;
    if (x <= 0) {
        return -std::numeric_limits<double>::infinity();
    }
    long double sum = 0.0L;
    for (int k = 0; k < x; ++k) {
        const long double log_term = n * std::log(x - k) - std::lgamma(k + 1.0L) -
                                     std::lgamma(n - k + 1.0L);
        sum += (k % 2 == 0 ? 1.0L : -1.0L) * std::exp(log_term);
    }
    // Both signs, every coefficient; the union bound is tight where it matters.
    return std::min(0.0, static_cast<double>(std::log2(sum)) + 1.0 +
                             std::log2(static_cast<double>(ring_degree)));
}

int choose_bound(long ring_degree, int hamming_weight, double log2_probability) {
    if (hamming_weight < 1 || hamming_weight > 64) {
        throw Error("the encapsulated secret's Hamming weight must be 1 to 64");
    }
    // From above: near the middle of the distribution the alternating sum loses all its digits.
    int bound = hamming_weight / 2 + 1;
    while (bound > 1 && log2_failure(ring_degree, hamming_weight, bound - 1) <= log2_probability) {
        --bound;
    }
    return bound;
}

int EvalMod::levels() const {
    return ceil_log2(degree() + 1) + static_cast<int>(double_angles.size()) +
           arcsine_levels(arcsine);
}

double EvalMod::operator()(double x) const {
    double v = clenshaw(chebyshev, (x - shift) / domain);
    for (const double c : double_angles) {
        v = 2.0 * v * v - c;
    }
    if (arcsine == 3) {
        v *= v * v + 1.0;
    }
    if (arcsine == 5) {
        v *= (v * v + square) * (v * v + square) + constant;
    }
    return gain * v;
}

EvalMod make_eval_mod(const ReductionTask& task, int degree, int double_angles, int arcsine) {
    if (task.bound < 1 || task.amplitude <= 0.0 || task.ratio < 4.0 * task.amplitude) {
        throw Error("a reduction needs K >= 1, A > 0 and q0/scale at least 4 A");
    }
    if (degree < 3 || double_angles < 0 || (arcsine != 1 && arcsine != 3 && arcsine != 5)) {
        throw Error("degree from 3 on, double angles from 0 on, arcsine 1, 3 or 5");
    }
    EvalMod result;
    result.task = task;
    result.arcsine = arcsine;
    result.shift = double_angles == 0 ? 0.0 : 0.25;
    result.domain = task.bound + result.shift + margin;

    // v before the arcsine is `size` times the sine; the arcsine's leading coefficient becomes 1.
    double size = 1.0;
    if (arcsine == 3) {
        size = 1.0 / std::sqrt(6.0);
    }
    if (arcsine == 5) {
        size = std::pow(3.0 / 40.0, 0.25);
        result.square = 1.0 / (12.0 * size * size);
        result.constant = 1.0 - result.square * result.square;
    }
    result.gain = 1.0 / (2.0 * pi * size);

    // 2 v^2 - c with v = a cos is a^2 times the cosine of twice the angle if c = a^2.
    double factor = std::pow(size, std::pow(2.0, -double_angles));
    const double frequency = 2.0 * pi * result.domain * std::pow(2.0, -double_angles);
    const auto target = [&](double t) {
        return factor * (double_angles == 0 ? std::sin(frequency * t) : std::cos(frequency * t));
    };
    const int parity = double_angles == 0 ? 1 : 0;
    result.chebyshev = interpolate(degree, parity, target);
    // A sine needs a degree over 2 pi K to get there, half of it coefficients: more than the 2 K + 1
    // values and slopes at 0 .. K.
    if (double_angles == 0 && std::abs(result.chebyshev.back()) < nearly_converged) {
        make_exact_at_integers(result.chebyshev, task.bound, result.domain, factor * frequency);
    }
    for (int i = 0; i < double_angles; ++i) {
        factor *= factor;
        result.double_angles.push_back(factor);
    }
    return result;
}

double error_bound(const EvalMod& eval_mod) {
    const auto [ring_degree, bound, ratio, amplitude] = eval_mod.task;
    // What the Chebyshev sum adds, in units of the message m = R e, near one integer.
    const auto fit_error = [&eval_mod, ratio = eval_mod.task.ratio](int integer, double m) {
        const double e = m / ratio;
        return ratio * (eval_mod(integer + e) - ideal_reduction(eval_mod.arcsine, e));
    };
    constexpr int samples = 32;
    double at_integers = 0.0;
    double slopes = 0.0;
    double curved = 0.0;
    for (int integer = -bound; integer <= bound; ++integer) {
        const double value = fit_error(integer, 0.0);
        const double h = amplitude / 64.0;
        const double slope = (fit_error(integer, h) - fit_error(integer, -h)) / (2.0 * h);
        at_integers = std::max(at_integers, std::abs(value));
        slopes = std::max(slopes, std::abs(slope));
        for (int sample = -samples; sample <= samples; ++sample) {
            const double m = amplitude * sample / samples;
            if (8 * std::abs(sample) < samples) {  // rounding errors, divided by m^2
                continue;
            }
            const double rest = fit_error(integer, m) - value - slope * m;
            curved = std::max(curved, std::abs(rest) / (m * m));
        }
    }
    // The ideal reduction's error over m^2 grows with m, so that its largest value is at A.
    const double ideal =
        std::abs(ratio * ideal_reduction(eval_mod.arcsine, amplitude / ratio) - amplitude);
    const auto n = static_cast<double>(ring_degree);
    return n * at_integers + std::sqrt(n) * amplitude * slopes + amplitude * amplitude * curved +
           ideal;
}

EvalMod choose_eval_mod(const ReductionTask& task, double max_error) {
    for (int levels = 4; levels <= max_levels; ++levels) {
        // A lower degree with more double angles takes fewer products at the same levels.
        for (int log_degree = 3; log_degree <= 8; ++log_degree) {
            for (const int arcsine : {1, 3, 5}) {
                const int double_angles = levels - log_degree - arcsine_levels(arcsine);
                if (double_angles < 0 || double_angles > 4) {
                    continue;
                }
                EvalMod candidate =
                    make_eval_mod(task, (1 << log_degree) - 1, double_angles, arcsine);
                if (error_bound(candidate) <= max_error) {
                    return candidate;
                }
            }
        }
    }
    throw Error("no modular reduction of up to 12 levels is this precise");
}

}  // namespace atlasc::bootstrapping
