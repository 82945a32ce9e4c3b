// What the kernels of a program share, and the values that they pass on.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "atlasc/clock.hpp"
#include "atlasc/engine.hpp"
#include "atlasc/layout.hpp"
#include "atlasc/rotation_plan.hpp"
#include "atlasc/tensor_file.hpp"

namespace atlasc {

/// A tensor in ciphertexts.
struct Packed {
    Layout layout;
    Ciphertexts parts;
};

/// The state of one execution.
class Context {
public:
    Context(Engine& engine, const RotationPlan& plan, const TensorFile& weights,
            const std::map<std::string, Tensor>& publics, Clock* clock = nullptr)
        : engine(engine), weights(weights), publics(publics), plan_(plan), clock_(clock) {}

    Engine& engine;
    const TensorFile& weights;
    /// Inputs that the server sees, by name.
    const std::map<std::string, Tensor>& publics;

    /// The module of the model that the next ops come from, for messages.
    void at(const char* place) { place_ = place; }
    const std::string& place() const { return place_; }

    /// An op begins: what every kernel says first. Named as in the IR, without "ckks.".
    void begin(const char* op) {
        if (clock_ != nullptr) {
            clock_->begin(op, place_);
        }
    }

    Ciphertext rotate(const Ciphertext& x, long amount) const {
        return plan_.rotate_many(engine, x, {amount})[0];
    }
    Ciphertexts rotate_many(const Ciphertext& x, const std::vector<long>& amounts) const {
        return plan_.rotate_many(engine, x, amounts);
    }

    /// The sum of one ciphertext or more.
    Ciphertext total(const Ciphertexts& terms) const;

    /// x[i] + x[i + stride] + ... over 2^bits neighbours.
    Ciphertext double_and_add(Ciphertext x, std::size_t stride, int bits) const;

private:
    const RotationPlan& plan_;
    Clock* clock_;
    std::string place_;
};

/// A number, numbers, or the name of an array of the weights.
class Constant {
public:
    Constant(double number) : numbers_{number}, is_number_(true) {}
    Constant(std::vector<double> numbers) : numbers_(std::move(numbers)) {}
    Constant(const char* name) : name_(name) {}

    bool is_number() const { return is_number_; }
    double number() const { return numbers_[0]; }

    /// The array, of one axis at least.
    Tensor array(const Context& context) const;

private:
    std::string name_;
    std::vector<double> numbers_;
    bool is_number_ = false;
};

/// Axes whose padding copies index 0, so that padding is as harmless as a real row.
constexpr const char* row_axes = "bt";

/// 1 in the slots of token 0 and 0 elsewhere, for a layout without its tokens.
Vector first_rows(const Layout& layout);

/// A tensor [..., features] as [..., g, d] of a layout, zero-padded.
Tensor blocked(const Tensor& tensor, const Layout& layout);

/// x[i] at i + amount, cyclically.
template <typename Number>
std::vector<Number> rolled(const std::vector<Number>& x, long amount) {
    const auto size = static_cast<long>(x.size());
    const long shift = (amount % size + size) % size;
    std::vector<Number> result(x.end() - shift, x.end());
    result.insert(result.end(), x.begin(), x.end() - shift);
    return result;
}

}  // namespace atlasc
