// Packing layouts: which slot bit is which bit of which tensor axis.
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

#include "atlasc/tensor_file.hpp"

namespace atlasc {

constexpr char replicated = '*';
constexpr char unused = '?';

/// Cleartext slots of one ciphertext.
using Vector = std::vector<double>;

/// Bits low to low + bits - 1 of the index along an axis.
struct Field {
    char axis;
    int bits;
    int low;

    bool operator==(const Field& other) const {
        return axis == other.axis && bits == other.bits && low == other.low;
    }
};

/// Where an element lies. The places of its indices along all axes add up to its place.
struct Place {
    std::size_t ciphertext;
    std::size_t slot;
};

/// Indices by axis.
using Index = std::map<char, std::size_t>;

class Layout {
public:
    /// Reads the text form; throws Error for anything else.
    explicit Layout(const std::string& text);

    std::size_t slots() const { return slots_; }
    std::size_t ciphertexts() const;
    std::vector<std::size_t> shape() const;

    /// Extent without padding; 1 where the layout does not have the axis.
    std::size_t extent(char axis) const;
    const std::vector<Field>& fields() const { return fields_; }

    /// Fields of the ciphertext number.
    const std::vector<Field>& outer() const { return outer_; }

    /// The slot field of an axis, nullptr where there is none.
    const Field* field(char axis) const;

    /// Bit position of the least significant bit of fields()[position].
    int offset(std::size_t position) const;

    /// Distance in slots between neighbours along an axis that has a slot field.
    std::size_t stride(char axis) const;

    /// What an index along one axis adds to the place of an element.
    Place place(char axis, std::size_t index) const;
    Place place(const Index& index) const;

    /// The index bits along an axis of a slot; 0 without a field.
    std::size_t index_of_slot(char axis, std::size_t slot) const;

    /// For every ciphertext, the index bits along each axis that its number stands for.
    std::vector<Index> ciphertext_index() const;

    /// For every ciphertext, the one of a reduced layout that aligns with it.
    std::vector<std::size_t> ciphertexts_of(const Layout& reduced) const;

    /// The layout after a reduction over axes: their slot fields become the stand-in.
    Layout without(const std::string& axes, char stand_in) const;

    /// The same values in one ciphertext, its number in place of the top bits of a first field that
    /// is replicated; nothing where its copies are too few, or one ciphertext is all.
    std::optional<Layout> gathered() const;

    /// The layout of one token's value, where the last field is that of the tokens: the top bits of
    /// that field number the blocks that number ciphertexts otherwise, the others are replicated.
    Layout one_row() const;

    /// Bits of the ciphertext number.
    int outer_bits() const;

    /// Extents of the axes grown to fill all slots of their ciphertexts.
    Layout padded(const std::string& axes) const;

    /// Slots of a tensor that broadcasts to shape(), one vector a ciphertext. Padding is zero,
    /// except along the axes `repeat`, where it copies index 0.
    std::vector<Vector> pack(const Tensor& tensor, const std::string& repeat) const;

    /// The tensor that slots hold; the first copy where replicated.
    Tensor unpack(const std::vector<Vector>& packed) const;

    bool operator==(const Layout& other) const {
        return fields_ == other.fields_ && outer_ == other.outer_ && extents_ == other.extents_;
    }

private:
    using Extents = std::vector<std::pair<char, std::size_t>>;

    Layout(std::vector<Field> fields, std::vector<Field> outer, Extents extents);
    std::size_t outer_radix(const Field& field) const;
    std::vector<std::size_t> replicas() const;
    std::vector<std::vector<Place>> places() const;

    std::vector<Field> fields_;
    std::vector<Field> outer_;
    Extents extents_;
    std::size_t slots_ = 1;
};

}  // namespace atlasc
