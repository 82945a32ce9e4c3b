// An engine that counts what another one is asked for, under the names of the Python counter.
#pragma once

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "atlasc/backend.hpp"
#include "atlasc/program_file.hpp"
#include "atlasc/roles.hpp"

namespace counting {

using namespace atlasc;

class Counter final : public Engine {
public:
    explicit Counter(Engine& engine, const Parameters& parameters)
        : engine_(engine), parameters_(parameters) {}

    /// Calls by primitive and level.
    std::map<std::pair<std::string, int>, std::size_t> counts;

    const Backend& backend() const override { return engine_.backend(); }
    const std::string& identity() const override { return engine_.identity(); }
    std::size_t slots() const override { return engine_.slots(); }
    int level(const Ciphertext& x) const override { return engine_.level(x); }
    std::size_t saved_size(int level, bool fresh) const override {
        return engine_.saved_size(level, fresh);
    }
    Bytes save(const Ciphertext& x) const override { return engine_.save(x); }
    Ciphertext load(const Bytes& bytes) const override { return engine_.load(bytes); }
    Vector decrypt(const Ciphertext& x) override { return engine_.decrypt(x); }
    Ciphertext encrypt(const Vector& x, int level) override { return engine_.encrypt(x, level); }
    Ciphertext drop_to(const Ciphertext& x, int level) override {
        return engine_.drop_to(x, level);
    }

    Ciphertext add(const Ciphertext& x, const Ciphertext& y) override {
        count("add", lower(x, y));
        return engine_.add(x, y);
    }
    Ciphertext sub(const Ciphertext& x, const Ciphertext& y) override {
        count("add", lower(x, y));
        return engine_.sub(x, y);
    }
    Ciphertext negate(const Ciphertext& x) override {
        count("negate", level(x));
        return engine_.negate(x);
    }
    Ciphertext add_plain(const Ciphertext& x, const Plaintext& value) override {
        count(std::holds_alternative<double>(value) ? "add_scalar" : "add_plain", level(x));
        return engine_.add_plain(x, value);
    }
    Ciphertext mul(const Ciphertext& x, const Ciphertext& y) override {
        count("mul", lower(x, y));
        return engine_.mul(x, y);
    }
    Ciphertext square(const Ciphertext& x) override {
        count("square", level(x));
        return engine_.square(x);
    }
    Ciphertext dot(const Ciphertexts& xs, const Ciphertexts& ys) override {
        const Ciphertext total = engine_.dot(xs, ys);
        for (std::size_t at = 0; at < xs.size(); ++at) {
            count(at + 1 < xs.size() ? "mul_lazy" : "mul", lower(xs[at], ys[at]));
        }
        count("add", level(total), xs.size() - 1);
        return total;
    }
    Ciphertext mul_plain(const Ciphertext& x, const Plaintext& value) override {
        count(std::holds_alternative<double>(value) ? "mul_scalar" : "mul_plain", level(x));
        return engine_.mul_plain(x, value);
    }
    Ciphertext times_i(const Ciphertext& x) override {
        count("times_i", level(x));
        return engine_.times_i(x);
    }
    Ciphertext conjugate(const Ciphertext& x) override {
        count("rotate", level(x));
        return engine_.conjugate(x);
    }
    Ciphertext raise_modulus(const Ciphertext& x, int level, std::size_t copies) override {
        return engine_.raise_modulus(x, level, copies);
    }
    void bootstrap_by(std::shared_ptr<const Record> record) override {
        engine_.bootstrap_by(std::move(record));
    }
    Ciphertext rotate(const Ciphertext& x, std::size_t amount) override {
        count("rotate", level(x));
        return engine_.rotate(x, amount);
    }
    Ciphertexts rotate_many(const Ciphertext& x, const std::vector<std::size_t>& amounts) override {
        if (amounts.size() == 1) {
            count("rotate", level(x));
        } else if (!amounts.empty()) {
            count("hoist", level(x));
            count("rotate_hoisted", level(x), amounts.size());
        }
        return engine_.rotate_many(x, amounts);
    }
    Ciphertexts transform(const Ciphertexts& xs, const std::vector<GiantStep>& steps,
                          bool chained) override {
        int at = level(xs.at(0));
        for (const Ciphertext& x : xs) {
            at = std::min(at, level(x));
        }
        const std::set<BabyStep> places = baby_steps(steps);
        std::set<std::size_t> operands;
        std::set<std::size_t> results;
        std::size_t babies = 0;
        for (const auto& [operand, rotation] : places) {
            if (rotation != 0) {
                operands.insert(operand);
                ++babies;
            }
        }
        std::size_t terms = 0;
        std::size_t dense = 0;
        std::size_t giants = 0;
        for (std::size_t step = 0; step < steps.size(); ++step) {
            const auto& [result, rotation, factors] = steps[step];
            results.insert(result);
            giants += (chained ? chain_amount(steps, step, slots()) : rotation) != 0 ? 1 : 0;
            terms += factors.size();
            for (const auto& [baby, value] : factors) {
                const auto* deferred = std::get_if<Deferred>(&value);
                dense += deferred == nullptr || deferred->repeats < 16 ? 1 : 0;
            }
        }
        count("hoist", at, operands.size());
        count("transform_baby", at, babies * ((steps.size() + 31) / 32));
        count("transform_giant", at, giants);
        count("transform_product", at, dense != 0 ? terms - dense : places.size() * steps.size());
        count("transform_dense", at, dense);
        count("transform_result", at, results.size());
        return engine_.transform(xs, steps, chained);
    }
    Ciphertexts bootstrap_many(const Ciphertexts& xs, std::size_t period, int level) override {
        const auto batch = static_cast<std::size_t>(parameters_.bootstrap_batch);
        const std::size_t rest = xs.size() % batch != 0 ? 1 : 0;
        if (2 * period <= slots()) {
            count("bootstrap_narrow", level, xs.size() / batch + rest);
        } else {
            count("bootstrap", level, xs.size() / batch);
            count("bootstrap_one", level, rest);
        }
        return engine_.bootstrap_many(xs, period, level);
    }

private:
    int lower(const Ciphertext& x, const Ciphertext& y) const {
        return std::min(level(x), level(y));
    }
    void count(const char* primitive, int level, std::size_t times = 1) {
        if (times != 0) {
            counts[{primitive, level}] += times;
        }
    }

    Engine& engine_;
    Parameters parameters_;
};

/// Executes a query and prints "primitive level count" lines, and on standard error one for each op:
/// NAME count KEYS WEIGHTS QUERY.
inline int count_main(char** argv, Program program) {
    const TensorFile weights(argv[1]);
    const StoredProgram stored(weights);
    const Interface& interface = stored.interface();
    const std::unique_ptr<Engine> engine = built_backend().server_engine(interface, argv[0], 0);
    Counter counter(*engine, interface.parameters);
    Message query = read_message(TensorFile(argv[2]), "query", interface, counter);
    Clock clock(interface.ops, std::cerr, Clock::Seconds(0), Clock::Seconds(0));
    const Record record(weights);
    Context context(counter, record, weights, query.publics, &clock);
    program(context, std::move(query.values));
    for (const auto& [key, times] : counter.counts) {
        std::cout << key.first << ' ' << key.second << ' ' << times << '\n';
    }
    return 0;
}

}  // namespace counting
