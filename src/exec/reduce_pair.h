// SPDX-License-Identifier: Apache-2.0
/* Template: MINLOC and MAXLOC of a pair type. Parameters: NAME; TYPE, a struct of value and index;
 * and the value's functions IS_NAN, TIE(op, a, b), which is its MIN or MAX, and STORE. The result
 * does not depend on the operands' order: NaN wins, then the value, then the smaller index. */

#define ACC TYPE

ALWAYS_INLINE TYPE FN(load)(kolo_op op, TYPE x)
{
    (void)op;
    return x;
}

ALWAYS_INLINE TYPE FN(apply)(kolo_op op, TYPE a, TYPE b)
{
    const bool min = op == KOLO_MINLOC;
    const bool a_nan = IS_NAN(a.value);
    const bool b_nan = IS_NAN(b.value);
    const bool a_wins = a_nan ? !b_nan : min ? a.value < b.value : a.value > b.value;
    const bool b_wins = b_nan ? !a_nan : min ? b.value < a.value : b.value > a.value;
    TYPE x = a_wins ? a : b;
    if (!a_wins && !b_wins) {
        x.index = a.index < b.index ? a.index : b.index;
        x.value = TIE(min ? KOLO_MIN : KOLO_MAX, a.value, b.value);
    }
    return x;
}

ALWAYS_INLINE TYPE FN(divide)(TYPE x, unsigned divisor)
{
    (void)divisor;
    return x;
}

ALWAYS_INLINE TYPE FN(store)(TYPE x)
{
    return (TYPE){.value = STORE(x.value), .index = x.index}; /* other members become 0 */
}

#include "exec/reduce_fold.h"

KERNEL(minloc, KOLO_MINLOC)
KERNEL(maxloc, KOLO_MAXLOC)

#undef ACC
#undef NAME
#undef TYPE
#undef IS_NAN
#undef TIE
#undef STORE
