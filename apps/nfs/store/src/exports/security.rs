//! Security flavors of exports: how calls prove their users, and how they are protected (RFC 2623
//! §2.3, RFC 8881 §2.6).
//!
//! An export accepts a list of flavors, the server's preference first. A list with `sys` accepts
//! calls without a user (AUTH_NONE) as well, and one without it accepts neither. Clients learn the
//! list from MNT, SECINFO and SECINFO_NO_NAME.

use core::fmt;

use crate::Security;

impl Security {
    /// Flavors that a list can have, the strongest first.
    pub const ALL: [Self; 4] = [Self::Krb5p, Self::Krb5i, Self::Krb5, Self::Sys];

    /// The flavor that a word names, as in the mount option `sec=`.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|flavor| flavor.word() == word)
    }

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Sys => "sys",
            Self::Krb5 => "krb5",
            Self::Krb5i => "krb5i",
            Self::Krb5p => "krb5p",
        }
    }

    /// The pseudo-flavor by which MOUNT names it (RFC 2623 §2.2.2, §2.3).
    pub const fn pseudo_flavor(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Sys => 1,
            Self::Krb5 => 390_003,
            Self::Krb5i => 390_004,
            Self::Krb5p => 390_005,
        }
    }

    /// Returns true if a ticket of Kerberos proves the user.
    pub const fn is_proven(self) -> bool {
        matches!(self, Self::Krb5 | Self::Krb5i | Self::Krb5p)
    }
}

/// Security flavors that an export accepts, the preferred one first. Never empty.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SecurityFlavors {
    flavors: [Security; Security::ALL.len()],
    len: usize,
}

impl SecurityFlavors {
    /// AUTH_SYS, and with it AUTH_NONE: the flavors of an export that names none.
    pub const SYS: Self = Self::only(Security::Sys);

    /// A list of one flavor.
    pub const fn only(flavor: Security) -> Self {
        Self { flavors: [flavor; Security::ALL.len()], len: 1 }
    }

    /// The flavors of a list; none of an empty one.
    ///
    /// # Errors
    /// The first flavor that is in the list twice, or cannot be in one.
    pub fn of(list: &[Security]) -> Result<Option<Self>, Security> {
        let Some((first, rest)) = list.split_first() else { return Ok(None) };
        if *first == Security::None {
            return Err(*first);
        }
        let mut flavors = Self::only(*first);
        for flavor in rest {
            flavors = flavors.with(*flavor).ok_or(*flavor)?;
        }
        Ok(Some(flavors))
    }

    /// The same list with one more flavor at its end; none if it has that one, or cannot have it.
    fn with(mut self, flavor: Security) -> Option<Self> {
        if flavor == Security::None || self.list().contains(&flavor) {
            return None;
        }
        *self.flavors.get_mut(self.len)? = flavor;
        self.len += 1;
        Some(self)
    }

    /// The flavors, in order.
    pub fn list(&self) -> &[Security] {
        self.flavors.get(..self.len).unwrap_or_default()
    }

    /// The preferred flavor.
    pub const fn first(&self) -> Security {
        let [first, ..] = self.flavors;
        first
    }

    /// Returns true if a call with this security is accepted.
    pub fn accept(&self, security: Security) -> bool {
        let named = match security {
            // A call without a user is worth as much as one with a user that it claims.
            Security::None => Security::Sys,
            named => named,
        };
        self.list().contains(&named)
    }

    /// The flavors that answers list: these, and AUTH_NONE at the end if it is accepted.
    pub fn announced(self) -> impl Iterator<Item = Security> {
        let none = self.accept(Security::None).then_some(Security::None);
        let listed = self.flavors.into_iter().take(self.len);
        listed.chain(none)
    }

    /// The flavors of this list and then those of another one.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        other.list().iter().fold(self, |all, flavor| all.with(*flavor).unwrap_or(all))
    }

    /// Returns true if a flavor is in both lists.
    pub fn meet(&self, other: &Self) -> bool {
        self.list().iter().any(|flavor| other.accept(*flavor))
    }

    /// Returns true if a flavor needs Kerberos.
    pub fn need_kerberos(&self) -> bool {
        self.list().iter().any(|flavor| flavor.is_proven())
    }
}

impl Default for SecurityFlavors {
    fn default() -> Self {
        Self::SYS
    }
}

impl fmt::Display for SecurityFlavors {
    /// As in the mount option: `krb5p:krb5i`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, flavor) in self.list().iter().enumerate() {
            let colon = if place == 0 { "" } else { ":" };
            write!(f, "{colon}{}", flavor.word())?;
        }
        Ok(())
    }
}

impl fmt::Debug for SecurityFlavors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecurityFlavors({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Security::{Krb5, Krb5i, Krb5p, None as Anyone, Sys};

    const EVERY: [Security; 5] = [Anyone, Sys, Krb5, Krb5i, Krb5p];

    fn of(list: &[Security]) -> SecurityFlavors {
        SecurityFlavors::of(list).unwrap().unwrap()
    }

    #[test]
    fn a_list_accepts_its_flavors_and_calls_without_a_user_where_it_has_sys() {
        for list in [&[Sys][..], &[Krb5p], &[Krb5i, Sys], &[Krb5, Krb5i, Krb5p], &Security::ALL] {
            let flavors = of(list);
            assert_eq!((flavors.list(), flavors.first()), (list, list[0]));
            for security in EVERY {
                let is_listed = list.contains(&security);
                let expected = is_listed || (security == Anyone && list.contains(&Sys));
                assert_eq!(flavors.accept(security), expected, "{flavors} {security:?}");
            }
            assert_eq!(flavors.need_kerberos(), *list != [Sys]);
        }
        assert_eq!(SecurityFlavors::default(), of(&[Sys]));
    }

    #[test]
    fn a_flavor_is_in_a_list_once_and_no_list_is_empty() {
        assert_eq!(SecurityFlavors::of(&[]), Ok(None));
        for list in [&[Krb5, Sys, Krb5][..], &[Krb5, Krb5]] {
            assert_eq!(SecurityFlavors::of(list), Err(Krb5));
        }
        for list in [&[Anyone][..], &[Sys, Anyone]] {
            assert_eq!(SecurityFlavors::of(list), Err(Anyone));
        }
    }

    #[test]
    fn answers_list_the_flavors_in_order_and_auth_none_last() {
        let answer = |list: &[Security]| of(list).announced().collect::<Vec<_>>();
        assert_eq!(answer(&[Sys]), [Sys, Anyone]);
        assert_eq!(answer(&[Sys, Krb5p]), [Sys, Krb5p, Anyone]);
        assert_eq!(answer(&[Krb5p, Krb5]), [Krb5p, Krb5]);
        assert_eq!(of(&[Krb5p, Krb5, Sys]).to_string(), "krb5p:krb5:sys");
        let numbers = EVERY.map(Security::pseudo_flavor);
        assert_eq!(numbers, [0, 1, 390_003, 390_004, 390_005]);
    }

    #[test]
    fn a_union_keeps_the_order_and_repeats_nothing() {
        let union = of(&[Krb5i, Sys]).union(of(&[Krb5p, Krb5i]));
        assert_eq!(union.list(), [Krb5i, Sys, Krb5p]);
        assert_eq!(of(&Security::ALL).union(of(&[Sys])), of(&Security::ALL));
        assert!(of(&[Krb5, Sys]).meet(&of(&[Krb5p, Sys])));
        assert!(!of(&[Krb5]).meet(&of(&[Krb5p, Sys])));
    }

    #[test]
    fn words_are_those_of_the_mount_option() {
        for flavor in Security::ALL {
            assert_eq!(Security::of_word(flavor.word()), Some(flavor));
        }
        for word in ["none", "", "KRB5", "krb5a", "sys "] {
            assert_eq!(Security::of_word(word), None, "{word}");
        }
    }
}
