#include "devices/host/vectors/lanes.hpp"

#include "devices/host/vectors/vector_kernels.hpp"

namespace atlasc::ckks::lanes {

void add(Word* out, const Word* a, const Word* b, std::size_t length, const Prime& q) {
    vector_kernels().add(out, a, b, length, q);
}

void subtract(Word* out, const Word* a, const Word* b, std::size_t length, const Prime& q) {
    vector_kernels().subtract(out, a, b, length, q);
}

void multiply(Word* out, const Word* a, const PlainValues& b, std::size_t length, const Prime& q) {
    vector_kernels().multiply(out, a, b, length, q);
}

void times_number(Word* out, const Word* a, Word factor, std::size_t length, const Prime& q) {
    vector_kernels().times_number(out, a, factor, length, q);
}

void plus_number(Word* out, const Word* a, Word number, std::size_t length, const Prime& q) {
    vector_kernels().plus_number(out, a, number, length, q);
}

void add_product(Word* const (&d)[3], const Word* const (&a)[2], const Word* const (&b)[2],
                 std::size_t length, bool first, const Prime& q) {
    vector_kernels().add_product(d, a, b, length, first, q);
}

void divide(Word* out, const Word* values, const Word* minuend, Word factor, std::size_t length,
            const Prime& q) {
    vector_kernels().divide(out, values, minuend, factor, length, q);
}

void lift(Word* out, const Word* in, std::size_t length, const Prime& from, const Prime& to) {
    vector_kernels().lift(out, in, length, from, to);
}

void inner_product(Word* b, Word* a, const Word* x, std::size_t digit_stride, const Packed& key,
                   std::size_t key_stride, std::size_t digits, const Addends& addends,
                   std::size_t length, const Prime& q) {
    vector_kernels().inner_product(b, a, x, digit_stride, key, key_stride, digits, addends, length,
                                   q);
}

void permute(Word* out, const Word* in, const std::uint32_t* from, bool accumulate,
             std::size_t length, const Prime& q) {
    vector_kernels().permute(out, in, from, accumulate, length, q);
}

void sum_of_products(Word* out, const Term* terms, std::size_t count, bool accumulate,
                     std::size_t length, const Prime& q) {
    vector_kernels().sum_of_products(out, terms, count, accumulate, length, q);
}

void matrix_product(Word* const* out, std::size_t first, const Word* x, std::size_t apart,
                    std::size_t count, const Word* factors, std::size_t rows, std::size_t length,
                    const Prime& q) {
    vector_kernels().matrix_product(out, first, x, apart, count, factors, rows, length, q);
}

void scale(Word* y, double* sum, const Word* x, Word inverse, std::size_t length,
           const Prime& q) {
    vector_kernels().scale(y, sum, x, inverse, length, q);
}

void combine(Word* out, const Word* y, std::size_t row, std::size_t size, const Word* hats,
             std::size_t stride, const Word* u, Word minus, std::size_t length, const Prime& q) {
    vector_kernels().combine(out, y, row, size, hats, stride, u, minus, length, q);
}

void residues(Word* out, const double* integers, std::size_t length, const Prime& q) {
    vector_kernels().residues(out, integers, length, q);
}

void chacha20(std::uint32_t (&words)[16][16], const Seed& seed, std::uint32_t counter,
              std::uint32_t step, const std::uint32_t (&nonce)[3]) {
    vector_kernels().chacha20(words, seed, counter, step, nonce);
}

}  // namespace atlasc::ckks::lanes
