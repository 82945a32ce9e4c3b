// Packing layouts: they map each slot bit to a bit of a tensor axis.
//
// Written as "[d:3 g:2 b:7 t:3 |  | b=16 t=5 g=4 d=8]": slot fields, most significant first; fields
// of the ciphertext number; extents of the axes without padding, in the order of the tensor's axes.
// A field is axis[.low]:bits. Axis * is replicated; of axis ? only index 0 holds the value.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atlasc/base/tensor_file.hpp"

namespace atlasc {

constexpr char replicated = '*';

/// Bits low to low + bits - 1 of the index along an axis.
struct Field {
    char axis;
    int bits;
    int low;
};

/// The place of an element: the sum of the places of its indices along all axes.
struct Place {
    std::size_t ciphertext;
    std::size_t slot;
};

class Layout {
public:
    /// Reads the text form. Throws Error for any other text.
    explicit Layout(const std::string& text);

    /// The text form.
    const std::string& text() const { return text_; }

    std::size_t slots() const { return slots_; }
    std::size_t ciphertexts() const;
    std::vector<std::size_t> shape() const;

    /// Names of the axes, in the order of the tensor's axes.
    std::string axes() const;

    /// Extent without padding; 1 if the layout lacks the axis.
    std::size_t extent(char axis) const;

    /// Whether an axis has a slot field.
    bool has(char axis) const;

    /// Slots of a tensor that broadcasts to shape(), one vector per ciphertext. Padding is zero,
    /// except along the axes `repeat`, where it copies index 0.
    std::vector<Vector> pack(const Tensor& tensor, const std::string& repeat) const;

    /// The tensor that slots hold; of replicated elements the first copy.
    Tensor unpack(const std::vector<Vector>& packed) const;

private:
    using Extents = std::vector<std::pair<char, std::size_t>>;

    Layout(std::vector<Field> fields, std::vector<Field> outer, Extents extents);
    std::size_t outer_radix(const Field& field) const;
    int offset(std::size_t position) const;
    Place place(char axis, std::size_t index) const;
    Layout padded(const std::string& axes) const;
    std::vector<std::size_t> replicas() const;
    std::vector<std::vector<Place>> places() const;

    std::string text_;
    std::vector<Field> fields_;
    std::vector<Field> outer_;
    Extents extents_;
    std::size_t slots_ = 1;
};

}  // namespace atlasc
