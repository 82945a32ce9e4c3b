// Prints what the numerical core of bootstrapping computes, for tests to compare with NumPy.
//
//   core diagonals cts|stc SLOTS STAGES FACTOR       lines: stage offset re im re im ...
//   core babies cts|stc SLOTS STAGES FACTOR          lines: stage giant baby re im re im ...
//   core transform cts|stc SLOTS STAGES FACTOR [STAGE]    slots from standard input to output
//   core failure RING_DEGREE WEIGHT BOUND
//   core bound RING_DEGREE WEIGHT LOG2_PROBABILITY
//   core reduction TASK DEGREE DOUBLE_ANGLES ARCSINE     lines: name numbers ...
//   core reduce TASK DEGREE DOUBLE_ANGLES ARCSINE        numbers from input to output
//   core choose TASK MAX_ERROR                           as reduction
//   core budget                         lines: name numbers ...
//
// TASK is RING_DEGREE BOUND RATIO AMPLITUDE. Numbers on standard input and output are binary.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "atlasc/error.hpp"
#include "linear_stages.hpp"
#include "parameters.hpp"

using namespace atlasc::bootstrapping;

namespace {

using Arguments = std::vector<std::string>;

double number(const Arguments& arguments, std::size_t at) {
    return std::strtod(arguments.at(at).c_str(), nullptr);
}

int integer(const Arguments& arguments, std::size_t at) {
    return static_cast<int>(number(arguments, at));
}

template <typename Numbers>
void print(const char* name, const Numbers& numbers) {
    std::printf("%s", name);
    for (const auto& value : numbers) {
        std::printf(" %.17g", static_cast<double>(value));
    }
    std::printf("\n");
}

void print(const Slots& values) {
    for (const Complex& value : values) {
        std::printf(" %.17g %.17g", value.real(), value.imag());
    }
    std::printf("\n");
}

template <typename Number>
std::vector<Number> read_all() {
    std::vector<Number> result;
    Number value;
    while (std::fread(&value, sizeof value, 1, stdin) == 1) {
        result.push_back(value);
    }
    return result;
}

template <typename Number>
void write_all(const std::vector<Number>& values) {
    std::fwrite(values.data(), sizeof(Number), values.size(), stdout);
}

std::vector<SparseMatrix> stages(const Arguments& arguments) {
    const auto slots = static_cast<std::size_t>(number(arguments, 2));
    const int count = integer(arguments, 3);
    const double factor = number(arguments, 4);
    return arguments.at(1) == "cts" ? coeffs_to_slots(slots, count, factor)
                                    : slots_to_coeffs(slots, count, factor);
}

ReductionTask task(const Arguments& arguments) {
    return {static_cast<long>(number(arguments, 1)), integer(arguments, 2), number(arguments, 3),
            number(arguments, 4)};
}

EvalMod reduction(const Arguments& arguments) {
    return make_eval_mod(task(arguments), integer(arguments, 5), integer(arguments, 6),
                         integer(arguments, 7));
}

void print(const EvalMod& eval_mod) {
    print("chebyshev", eval_mod.chebyshev);
    print("double_angles", eval_mod.double_angles);
    print("arcsine", std::vector{static_cast<double>(eval_mod.arcsine), eval_mod.square,
                                 eval_mod.constant});
    print("argument", std::vector{eval_mod.shift, eval_mod.domain});
    print("gain", std::vector{eval_mod.gain});
    print("levels", std::vector{eval_mod.levels()});
    print("error_bound", std::vector{error_bound(eval_mod)});
}

void print(const Parameters& parameters) {
    const Budget found = budget(parameters);
    print("prime_bits", found.prime_bits);
    print("log_scales", found.log_scales);
    print("log_qp", std::vector{found.log_qp});
    print("special_primes", std::vector{parameters.special_primes});
    print("special_bits", std::vector{parameters.eval_bits});
    print("secret_weight", std::vector{parameters.secret_weight});
    print("levels_left", std::vector{parameters.levels_left});
    print("stages", std::vector{parameters.cts_stages, parameters.stc_stages});
    print("factors", std::vector{found.cts_factor, found.stc_factor});
    print("bound", std::vector{found.reduction.task.bound});
    print("ratio", std::vector{parameters.ratio()});
    print("eval_bits", std::vector{parameters.eval_bits});
    print(found.reduction);
}

void run(const Arguments& arguments) {
    const std::string& command = arguments.at(0);
    if (command == "diagonals") {
        int stage = 0;
        for (const SparseMatrix& matrix : stages(arguments)) {
            for (const auto& [offset, diagonal] : matrix.diagonals) {
                std::printf("%d %ld", stage, offset);
                print(diagonal);
            }
            ++stage;
        }
    } else if (command == "babies") {
        int stage = 0;
        for (const SparseMatrix& matrix : stages(arguments)) {
            for (const atlasc::GiantStep& giant : baby_giant(matrix)) {
                for (const auto& [baby, factor] : giant.terms) {
                    std::printf("%d %zu %zu", stage, giant.rotation, baby);
                    print(std::get<Slots>(atlasc::made(factor)));
                }
            }
            ++stage;
        }
    } else if (command == "transform") {
        Slots slots = read_all<Complex>();
        const std::vector<SparseMatrix> matrices = stages(arguments);
        for (std::size_t stage = 0; stage < matrices.size(); ++stage) {
            if (arguments.size() < 6 || integer(arguments, 5) == static_cast<int>(stage)) {
                slots = matrices[stage](slots);
            }
        }
        write_all(slots);
    } else if (command == "failure") {
        std::printf("%.17g\n", log2_failure(static_cast<long>(number(arguments, 1)),
                                            integer(arguments, 2), integer(arguments, 3)));
    } else if (command == "bound") {
        std::printf("%d\n", choose_bound(static_cast<long>(number(arguments, 1)),
                                         integer(arguments, 2), number(arguments, 3)));
    } else if (command == "reduction") {
        print(reduction(arguments));
    } else if (command == "reduce") {
        const EvalMod eval_mod = reduction(arguments);
        std::vector<double> values = read_all<double>();
        for (double& value : values) {
            value = eval_mod(value);
        }
        write_all(values);
    } else if (command == "choose") {
        print(choose_eval_mod(task(arguments), number(arguments, 5)));
    } else if (command == "budget") {
        print(Parameters());
    }
}

}  // namespace

int main(int count, char** values) {
    try {
        run(Arguments(values + 1, values + count));
    } catch (const atlasc::Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 2;
    }
    return 0;
}
