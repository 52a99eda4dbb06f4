// SPDX-License-Identifier: Apache-2.0
// The blocks that a program has not defined itself, and the switch.
#ifndef OWN_PARSER
PARSER {
    START
    state subject {
        packet.extract(h.subject);
        transition accept;
    }
}
#endif

#ifndef OWN_VERIFY
VERIFY { apply { } }
#endif

#ifndef OWN_EGRESS
EGRESS { apply { } }
#endif

#ifndef OWN_UPDATE
UPDATE { apply { } }
#endif

#ifndef OWN_DEPARSER
DEPARSER { apply { packet.emit(h); } }
#endif

V1Switch(P(), V(), I(), E(), U(), D()) main;
