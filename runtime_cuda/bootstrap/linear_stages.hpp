// CoeffsToSlots and SlotsToCoeffs as products of a few sparse matrices.
//
// A polynomial m of degree N has the slots z_j = m(zeta^(5^j)), zeta = exp(i pi / N), j < N/2. With
// the complex coefficients c_k = m_k + i m_(k + N/2) that is z = U c, because zeta^(N/2) = i and
// 5^j = 1 modulo 4: U_jk = zeta^(5^j k), a matrix of N/2 rows with U U^H = (N/2) I. U is a fast
// Fourier transform: a bit reversal and log2(N/2) butterflies of two or three diagonals each.
//
// SlotsToCoeffs (StC) is the product of the butterflies, CoeffsToSlots (CtS) that of their
// inverses. Neither does the bit reversal: between the two, the slots hold c in bit-reversed order,
// and the modular reduction, which is the same in every slot, does not care. Neighbouring
// butterflies are multiplied together, so that a transform costs few levels.
//
// Sources: Cheon, Han, Kim, Kim, Song, EUROCRYPT 2018 (transforms by diagonals, on encrypted slots);
// Chen, Chillotti, Song, EUROCRYPT 2019 (butterflies, grouped); Bossuat, Mouchet, Troncoso-Pastoriza,
// Hubaux, EUROCRYPT 2021 (no bit reversal, scaling in equal parts).
#pragma once

#include <complex>
#include <cstddef>
#include <map>
#include <vector>

#include "atlasc/engine.hpp"

namespace atlasc::bootstrapping {

using Complex = std::complex<double>;
using Slots = ComplexVector;

/// A square matrix by its diagonals: (M z)[p] = sum over d of diagonals[d][p] z[(p + d) mod slots].
///
/// z[(p + d)] as a vector is the rotation of z by d to the left. Offsets lie in
/// [-slots/2, slots/2): the nearest way round.
struct SparseMatrix {
    std::size_t slots = 0;
    std::map<long, Slots> diagonals;

    Slots operator()(const Slots& z) const;
};

/// `left` after `right`. Both have the same number of slots.
SparseMatrix operator*(const SparseMatrix& left, const SparseMatrix& right);

/// Matrices to be applied in this order, one level each; together `factor` times CtS.
///
/// slots: N/2, a power of two from 2 on; stages: 1 to log2(slots); factor > 0, spread evenly.
/// Throws Error.
std::vector<SparseMatrix> coeffs_to_slots(std::size_t slots, int stages, double factor);

/// The same for StC.
std::vector<SparseMatrix> slots_to_coeffs(std::size_t slots, int stages, double factor);

/// How many butterflies each stage of CtS holds, in the order of application; StC has the reverse.
/// They differ by at most one. The first stages of CtS are the largest: the very first one holds
/// the butterfly that wraps around the slots, so that g of them have 2^g diagonals there and
/// 2^(g+1) - 1 elsewhere.
std::vector<int> butterflies_per_stage(std::size_t slots, int stages);

/// M z = sum over giant steps of rotate(sum over terms of vector * rotate(z, baby), giant).
///
/// All offsets of a stage are multiples of one step; babies are step * (0 .. count - 1), giants
/// multiples of step * count, and the vectors are rotated back by the giant step. The count, a
/// power of two, makes the rotations fewest; of two such counts the larger, whose babies share one
/// decomposition (hoisting).
std::vector<GiantStep> baby_giant(const SparseMatrix& matrix);

}  // namespace atlasc::bootstrapping
